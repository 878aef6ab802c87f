// k-back: at every token, the answer is the token kBack places before it. The
// distance is the same at every length, so a model that has learned it as a
// distance generalises to any length.
#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

constexpr int64_t kItems = 16;
constexpr int64_t kBack = 4;

Sequence Make(const SequenceRequest& request, Random& random) {
  Sequence sequence;
  for (int64_t i = 0; i < request.length; ++i) {
    sequence.tokens.push_back(random.Below(kItems));
    sequence.targets.push_back(
        i < kBack ? kUnscored
                  : sequence.tokens[static_cast<size_t>(i - kBack)]);
  }
  return sequence;
}

}  // namespace

const TaskInfo kKBackTask = {
    .name = "k-back",
    .title = "Four back",
    .what = "At every token, give out the token four places before it.",
    .vocabulary = kItems,
    .defaults = {.steps = 200},
    .make = Make,
};

}  // namespace locus::lab

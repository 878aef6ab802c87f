// Counting: at every bit, the answer is how many of the last kWindow bits are
// ones.
#include <algorithm>

#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

constexpr int64_t kWindow = 6;

Sequence Make(const SequenceRequest& request, Random& random) {
  Sequence sequence;
  for (int64_t i = 0; i < request.length; ++i) {
    sequence.tokens.push_back(random.Below(2));
    int64_t ones = 0;
    for (int64_t j = std::max<int64_t>(0, i - kWindow + 1); j <= i; ++j) {
      ones += sequence.tokens[static_cast<size_t>(j)];
    }
    sequence.targets.push_back(i < kWindow - 1 ? kUnscored : ones);
  }
  return sequence;
}

}  // namespace

const TaskInfo kCountTask = {
    .name = "count",
    .title = "Count",
    .what = "At every bit, give out how many of the last six bits are ones.",
    .vocabulary = kWindow + 1,
    .defaults = {.steps = 200},
    .make = Make,
};

}  // namespace locus::lab

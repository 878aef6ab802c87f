// Copy and reverse: items, a mark, then the items again, forwards or backwards.
// Both require the position of an item: for copy at a fixed distance within a
// sequence, for reverse at a distance that grows with every answer.
#include <algorithm>

#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

// Items repeat within a sequence, so neighbouring items do not determine the
// position.
constexpr int64_t kItems = 32;

}  // namespace

const TaskInfo kCopyTask = {
    .name = "copy",
    .title = "Copy",
    .what = "Repeat a row of items after the mark.",
    .vocabulary = kItems + 2,
    .make =
        [](const SequenceRequest& request, Random& random) {
          return ItemsThenAnswer(
              request, kItems, random,
              [](std::vector<int64_t> items) { return items; });
        },
};

const TaskInfo kReverseTask = {
    .name = "reverse",
    .title = "Reverse",
    .what = "Repeat a row of items backwards after the mark.",
    .vocabulary = kItems + 2,
    .defaults = {.steps = 400},
    .make =
        [](const SequenceRequest& request, Random& random) {
          return ItemsThenAnswer(request, kItems, random,
                                 [](std::vector<int64_t> items) {
                                   std::reverse(items.begin(), items.end());
                                   return items;
                                 });
        },
};

}  // namespace locus::lab

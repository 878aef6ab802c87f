// Sorting: items, a mark, then the items in ascending order. Items repeat.
#include <algorithm>

#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

constexpr int64_t kItems = 32;

}  // namespace

const TaskInfo kSortTask = {
    .name = "sort",
    .title = "Sort",
    .what = "Repeat a row of items in ascending order after the mark.",
    .vocabulary = kItems + 2,
    .make =
        [](const SequenceRequest& request, Random& random) {
          return ItemsThenAnswer(request, kItems, random,
                                 [](std::vector<int64_t> items) {
                                   std::sort(items.begin(), items.end());
                                   return items;
                                 });
        },
};

}  // namespace locus::lab

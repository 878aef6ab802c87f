// Shared code of the tasks.
#ifndef LOCUS_LAB_TASKS_TASKS_H_
#define LOCUS_LAB_TASKS_TASKS_H_

#include <span>

#include "lab/tasks/task.h"

namespace locus::lab {

// One file per task, each defining its row of the list (lab/tasks/list.cc).
extern const TaskInfo kTextTask;
extern const TaskInfo kCopyTask;
extern const TaskInfo kReverseTask;
extern const TaskInfo kKBackTask;
extern const TaskInfo kRecallTask;
extern const TaskInfo kCountTask;
extern const TaskInfo kSortTask;

// A sequence of symbols, some of which are answers determined by earlier ones.
struct Symbols {
  std::vector<int64_t> values = {};
  std::vector<bool> answers = {};

  void Add(int64_t value, bool answer = false) {
    values.push_back(value);
    answers.push_back(answer);
  }
};

// Number of symbols of a sequence: a decoder reads all but the last and outputs
// all but the first.
int64_t NumSymbols(const SequenceRequest& request);

// Targets for a decoder: the next symbol, if it is an answer. For an encoder:
// the symbol itself, if it is an answer, with `blank` in its place. Missing
// symbols at the end are `blank` and unscored.
Sequence ToSequence(const SequenceRequest& request, Symbols symbols,
                    int64_t blank);

// [items] mark [answer]: n items, a mark, n answers. n is the largest that fits
// for scoring, and between half of that and all of it for training, so that no
// model can learn a fixed distance. `answer` maps the items to the answer.
// Items are 0 .. alphabet - 1; the mark is `alphabet`, blanks are `alphabet` +
// 1.
Sequence ItemsThenAnswer(
    const SequenceRequest& request, int64_t alphabet, Random& random,
    std::vector<int64_t> (*answer)(std::vector<int64_t> items));

}  // namespace locus::lab

#endif  // LOCUS_LAB_TASKS_TASKS_H_

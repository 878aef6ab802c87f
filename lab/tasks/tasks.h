// What the files of tasks share.
#ifndef LOCUS_LAB_TASKS_TASKS_H_
#define LOCUS_LAB_TASKS_TASKS_H_

#include <span>

#include "lab/tasks/task.h"

namespace locus::lab {

// One file a task, each with its row of the list (lab/tasks/list.cc).
extern const TaskInfo kTextTask;
extern const TaskInfo kCopyTask;
extern const TaskInfo kReverseTask;
extern const TaskInfo kKBackTask;
extern const TaskInfo kRecallTask;
extern const TaskInfo kCountTask;
extern const TaskInfo kSortTask;

// A sequence of symbols, some of which are answers that follow from what comes
// before them.
struct Symbols {
  std::vector<int64_t> values = {};
  std::vector<bool> answers = {};

  void Add(int64_t value, bool answer = false) {
    values.push_back(value);
    answers.push_back(answer);
  }
};

// How many symbols a sequence of the request has: a decoder reads all but the
// last and gives out all but the first.
int64_t NumSymbols(const SequenceRequest& request);

// Targets for a decoder: the next symbol, where it is an answer. For an
// encoder: the symbol itself, where it is an answer, and `blank` in its place.
// Symbols that are missing at the end are `blank`, unscored.
Sequence ToSequence(const SequenceRequest& request, Symbols symbols,
                    int64_t blank);

// [items] mark [answer]: n items, a mark, n answers, with the largest n that
// fits when scored and anything from half of it when trained, so that no model
// can learn one fixed distance. `answer` turns the items into the answer.
// Items are 0 .. alphabet - 1; the mark is `alphabet`, blanks `alphabet` + 1.
Sequence ItemsThenAnswer(
    const SequenceRequest& request, int64_t alphabet, Random& random,
    std::vector<int64_t> (*answer)(std::vector<int64_t> items));

}  // namespace locus::lab

#endif  // LOCUS_LAB_TASKS_TASKS_H_

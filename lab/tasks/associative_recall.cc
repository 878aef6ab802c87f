// Associative recall: a sequence of writes and reads of a few memory cells. A
// write is a single token, a cell with its new value; at a read of a cell, the
// answer is the value last written to it. Cells are overwritten all the time,
// so content finds the writes and position the last of them.
#include <array>

#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

// Tokens: reads 0 .. kCells - 1, then writes, kValues per cell. Answers are the
// values themselves.
constexpr int64_t kCells = 8;
constexpr int64_t kValues = 8;
constexpr double kReads = 0.5;  // share of tokens

Sequence Make(const SequenceRequest& request, Random& random) {
  std::array<int64_t, kCells> memory;
  memory.fill(kUnscored);  // not written yet, so it cannot be read
  // The first token writes a cell and the last reads it: every sequence has a
  // question.
  const int64_t first_cell = random.Below(kCells);
  const int64_t last = request.length - 1;
  Sequence sequence;
  for (int64_t i = 0; i <= last; ++i) {
    const int64_t cell =
        i == 0 || i == last ? first_cell : random.Below(kCells);
    int64_t& held = memory[static_cast<size_t>(cell)];
    if (i == last || (i > 0 && random.Uniform() < kReads)) {
      sequence.tokens.push_back(cell);
      sequence.targets.push_back(held);
    } else {
      held = random.Below(kValues);
      sequence.tokens.push_back(kCells + cell * kValues + held);
      sequence.targets.push_back(kUnscored);
    }
  }
  return sequence;
}

}  // namespace

const TaskInfo kRecallTask = {
    .name = "recall",
    .title = "Associative recall",
    .what = "At every read of a cell, give out the value last written to it.",
    .vocabulary = kCells + kCells * kValues,
    .make = Make,
};

}  // namespace locus::lab

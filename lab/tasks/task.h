// The tasks of the lab: text, and synthetic tasks with exact answers.
//
// A task maps (seed, step) to a batch of tokens and targets. Nothing else
// matters, so every encoding with the same seed sees the same data in the same
// order. Sequences for scoring come from a separate stream and do not depend on
// the seed.
#ifndef LOCUS_LAB_TASKS_TASK_H_
#define LOCUS_LAB_TASKS_TASK_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lab/tasks/corpus.h"
#include "lab/tasks/random.h"

namespace locus::lab {

enum class ModelKind : uint8_t { kDecoder, kEncoder };

// One sequence. targets[i] is the token that the model should output at i, or
// kUnscored. A decoder sees tokens up to i, an encoder all of them, with the
// answers blanked.
inline constexpr int64_t kUnscored = -1;
struct Sequence {
  std::vector<int64_t> tokens = {};   // [length]
  std::vector<int64_t> targets = {};  // [length]
};

// The parameters of a sequence.
struct SequenceRequest {
  ModelKind kind = ModelKind::kDecoder;
  int64_t length = 0;
  // False: for scoring. Synthetic tasks then have the largest size that fits;
  // text is window number `index` of the held-out part.
  bool training = true;
  int64_t index = 0;
  const Corpus* corpus = nullptr;  // for tasks that use one
};

// Settings that suit a task on two cores; see docs/lab.md. The same for every
// encoding.
struct TaskDefaults {
  int64_t train_length = 32;
  std::vector<int64_t> lengths = {32, 64, 128, 256};
  int64_t batch = 32;
  int64_t steps = 300;
  double learning_rate = 2e-3;
  int64_t score_tokens = 16384;  // that an evaluation reads at each length
};

struct TaskInfo {
  std::string_view name;     // "copy"
  std::string_view title;    // "Copy"
  std::string_view what;     // one sentence
  int64_t vocabulary = 0;    // tokens are 0 .. vocabulary - 1
  bool uses_corpus = false;  // SequenceRequest::corpus must be given
  TaskDefaults defaults = {};
  Sequence (*make)(const SequenceRequest& request, Random& random) = nullptr;
};

// Every task, text first.
std::span<const TaskInfo> Tasks();

// Throws Error with the known names if there is no such task.
const TaskInfo& FindTask(std::string_view name);

// Sequences of one training step: the same for the same arguments.
std::vector<Sequence> TrainingBatch(const TaskInfo& task,
                                    const SequenceRequest& request,
                                    int64_t batch, uint64_t seed, int64_t step);

// Sequences first .. first + count - 1 of those for scoring.
std::vector<Sequence> ScoredSequences(const TaskInfo& task,
                                      const SequenceRequest& request,
                                      int64_t first, int64_t count);

// How many sequences of `length` have about `tokens` tokens: at least one, and
// for text at most as many as the held-out part has.
int64_t NumScoredSequences(const TaskInfo& task, const Corpus* corpus,
                           int64_t length, int64_t tokens);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TASKS_TASK_H_

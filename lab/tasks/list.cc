#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "lab/tasks/task.h"
#include "lab/tasks/tasks.h"
#include "locus/error.h"

namespace locus::lab {

int64_t NumSymbols(const SequenceRequest& request) {
  return request.length + (request.kind == ModelKind::kDecoder ? 1 : 0);
}

Sequence ToSequence(const SequenceRequest& request, Symbols symbols,
                    int64_t blank) {
  const size_t shift = request.kind == ModelKind::kDecoder ? 1 : 0;
  const size_t length = static_cast<size_t>(request.length);
  while (symbols.values.size() < length + shift) symbols.Add(blank);
  Sequence sequence;
  for (size_t i = 0; i < length; ++i) {
    const bool hidden = shift == 0 && symbols.answers[i];
    sequence.tokens.push_back(hidden ? blank : symbols.values[i]);
    const size_t target = i + shift;
    sequence.targets.push_back(symbols.answers[target] ? symbols.values[target]
                                                       : kUnscored);
  }
  return sequence;
}

Sequence ItemsThenAnswer(
    const SequenceRequest& request, int64_t alphabet, Random& random,
    std::vector<int64_t> (*answer)(std::vector<int64_t> items)) {
  const int64_t most = (NumSymbols(request) - 1) / 2;
  const int64_t count =
      request.training ? random.Between((most + 1) / 2, most) : most;
  std::vector<int64_t> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(random.Below(alphabet));
  Symbols symbols;
  for (const int64_t item : items) symbols.Add(item);
  symbols.Add(alphabet);
  for (const int64_t item : answer(std::move(items))) {
    symbols.Add(item, /*answer=*/true);
  }
  return ToSequence(request, std::move(symbols), /*blank=*/alphabet + 1);
}

std::span<const TaskInfo> Tasks() {
  static const std::array<TaskInfo, 7> tasks = {
      kTextTask,   kCopyTask,  kReverseTask, kKBackTask,
      kRecallTask, kCountTask, kSortTask};
  return tasks;
}

const TaskInfo& FindTask(std::string_view name) {
  std::string known;
  for (const TaskInfo& task : Tasks()) {
    if (task.name == name) return task;
    if (!known.empty()) known += ", ";
    known += task.name;
  }
  throw Error(
      fmt::format("there is no task \"{}\"; there are {}", name, known));
}

namespace {

// Shorter synthetic sequences have no room for a question and its answer.
constexpr int64_t kLeastLength = 8;

void CheckRequest(const TaskInfo& task, const SequenceRequest& request) {
  if (request.length < kLeastLength) {
    throw Error(fmt::format("task {} needs sequences of at least {}, got {}",
                            task.name, kLeastLength, request.length));
  }
  if (task.uses_corpus && request.corpus == nullptr) {
    throw Error(fmt::format("task {} needs a corpus", task.name));
  }
}

}  // namespace

std::vector<Sequence> TrainingBatch(const TaskInfo& task,
                                    const SequenceRequest& request,
                                    int64_t batch, uint64_t seed,
                                    int64_t step) {
  CheckRequest(task, request);
  std::vector<Sequence> sequences;
  for (int64_t row = 0; row < batch; ++row) {
    Random random(task.name, {seed, static_cast<uint64_t>(step),
                              static_cast<uint64_t>(row)});
    SequenceRequest one = request;
    one.training = true;
    sequences.push_back(task.make(one, random));
  }
  return sequences;
}

std::vector<Sequence> ScoredSequences(const TaskInfo& task,
                                      const SequenceRequest& request,
                                      int64_t first, int64_t count) {
  CheckRequest(task, request);
  std::vector<Sequence> sequences;
  for (int64_t index = first; index < first + count; ++index) {
    Random random("scored", {static_cast<uint64_t>(request.length),
                             static_cast<uint64_t>(index)});
    SequenceRequest one = request;
    one.training = false;
    one.index = index;
    sequences.push_back(task.make(one, random));
  }
  return sequences;
}

int64_t NumScoredSequences(const TaskInfo& task, const Corpus* corpus,
                           int64_t length, int64_t tokens) {
  CheckRequest(task, {.length = length, .corpus = corpus});
  int64_t count = std::max<int64_t>(tokens / length, 1);
  if (task.uses_corpus) {
    const auto held_out = static_cast<int64_t>(corpus->held_out().size());
    if (held_out <= length) {
      throw Error(fmt::format(
          "the corpus has {} bytes held out, too few for sequences of {}",
          held_out, length));
    }
    // A window needs the byte after it as well.
    count = std::min(count, (held_out - 1) / length);
  }
  return count;
}

}  // namespace locus::lab

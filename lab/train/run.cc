#include "lab/train/run.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lab/train/model.h"
#include "lab/train/optimiser.h"
#include "lab/train/pictures.h"
#include "lab/train/threads.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

// Sequences are scored this many tokens at a time: enough to keep the processor
// busy, few enough for its cache.
constexpr int64_t kScoredAtOnce = 4096;

// Enough for an interval; longer blocks of text are less correlated with their
// neighbours.
constexpr int64_t kMostScoreBlocks = 32;

// Fine-tuning runs at this fraction of the highest rate.
constexpr double kFineTuneShare = 0.2;

// Sequences as tensors, with the tokens that are scored.
struct Batch {
  torch::Tensor tokens = {};   // int64 [B, L]
  torch::Tensor rows = {};     // int64 [n], of the B * L tokens
  torch::Tensor targets = {};  // int64 [n]
};

int64_t NumScored(std::span<const Sequence> sequences) {
  int64_t scored = 0;
  for (const Sequence& sequence : sequences) {
    scored += std::ranges::count_if(
        sequence.targets, [](int64_t target) { return target != kUnscored; });
  }
  return scored;
}

Batch ToBatch(std::span<const Sequence> sequences) {
  const auto count = static_cast<int64_t>(sequences.size());
  const auto length = static_cast<int64_t>(sequences[0].tokens.size());
  std::vector<int64_t> tokens, rows, targets;
  for (const Sequence& sequence : sequences) {
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      if (sequence.targets[i] != kUnscored) {
        rows.push_back(static_cast<int64_t>(tokens.size()));
        targets.push_back(sequence.targets[i]);
      }
      tokens.push_back(sequence.tokens[i]);
    }
  }
  return {torch::tensor(tokens).view({count, length}), torch::tensor(rows),
          torch::tensor(targets)};
}

void CheckSpec(const RunSpec& spec) {
  const auto positive = [](const char* name, auto value) {
    if (!(value > 0)) {
      throw Error(fmt::format("{} must be positive, got {}", name, value));
    }
  };
  positive("train_length", spec.train_length);
  positive("batch", spec.batch);
  positive("steps", spec.steps);
  positive("layers", spec.layers);
  positive("model_dim", spec.model_dim);
  positive("heads", spec.heads);
  positive("learning_rate", spec.learning_rate);
  positive("threads", spec.threads);
  if (spec.model_dim % spec.heads != 0) {
    throw Error(fmt::format("model_dim must be a multiple of heads {}, got {}",
                            spec.heads, spec.model_dim));
  }
}

// Everything that the run depends on, as text.
std::string Describe(const RunSpec& spec, const Position& position,
                     const Corpus* corpus) {
  std::string options = position.FileSum();
  for (const auto& [name, value] : spec.options) {
    options += fmt::format(" {}={}", name, value);
  }
  return fmt::format(
      "{}{}, task {}, {}, {}, length {}, batch {}, steps {}, layers {}, "
      "model_dim {}, heads {}, learning rate {}, seed {}, threads {}, corpus "
      "{}",
      spec.encoding, options, spec.task,
      spec.kind == ModelKind::kDecoder ? "decoder" : "encoder",
      spec.path == AttentionPath::kFused ? "fused" : "materialised",
      spec.train_length, spec.batch, spec.steps, spec.layers, spec.model_dim,
      spec.heads, spec.learning_rate, spec.seed, spec.threads,
      corpus == nullptr ? "none" : corpus->sha256());
}

ModelConfig ConfigOf(const RunSpec& spec, int64_t vocabulary) {
  return {.position = {.encoding = spec.encoding,
                       .file = spec.file,
                       .options = spec.options,
                       .kind = spec.kind,
                       .layers = spec.layers,
                       .heads = spec.heads,
                       .head_dim = spec.model_dim / spec.heads,
                       .train_length = spec.train_length},
          .vocabulary = vocabulary,
          .fused = spec.path == AttentionPath::kFused,
          .seed = spec.seed,
          .threads = spec.threads};
}

using Json = nlohmann::json;

// Numbers of a saved state: float32, little-endian.
Json BytesOf(const torch::Tensor& numbers) {
  const auto* data = static_cast<const uint8_t*>(numbers.data_ptr());
  return Json::binary({data, data + numbers.nbytes()});
}

// The inverse, with the sizes of `like`.
torch::Tensor NumbersOf(const Json& bytes, const torch::Tensor& like) {
  const Json::binary_t& binary = bytes.get_binary();
  if (binary.size() != like.nbytes()) {
    throw Error(
        fmt::format("the saved state has {} bytes where this run has {}",
                    binary.size(), like.nbytes()));
  }
  torch::Tensor numbers = torch::empty_like(like);
  std::memcpy(numbers.data_ptr(), binary.data(), binary.size());
  return numbers;
}

}  // namespace

RunSpec DefaultSpec(std::string_view task) {
  const TaskDefaults& defaults = FindTask(task).defaults;
  RunSpec spec;
  spec.task = task;
  spec.train_length = defaults.train_length;
  spec.batch = defaults.batch;
  spec.steps = defaults.steps;
  spec.learning_rate = defaults.learning_rate;
  return spec;
}

struct Run::State {
  State(const RunSpec& s, const Corpus* c, const Ranks& r)
      : spec(s),
        ranks(r),
        task(FindTask(s.task)),
        corpus(task.uses_corpus ? c : nullptr),
        model(ConfigOf(s, task.vocabulary)),
        optimiser(model.parameters()),
        train_length(s.train_length),
        options(s.options) {}

  SequenceRequest Request(int64_t length) const {
    return {.kind = spec.kind, .length = length, .corpus = corpus};
  }
  // The number of tokens per step is unchanged when the length changes.
  int64_t BatchSize() const {
    return std::max<int64_t>(spec.batch * spec.train_length / train_length, 1);
  }
  double LearningRate() const {
    return extended ? kFineTuneShare * spec.learning_rate
                    : LearningRateAt(spec.learning_rate, step, spec.steps);
  }

  const RunSpec spec;
  const Ranks& ranks;
  const TaskInfo& task;
  const Corpus* const corpus;
  Model model;
  Optimiser optimiser;
  int64_t step = 0;
  bool extended = false;
  int64_t train_length;
  std::map<std::string, std::string> options;  // current
};

Run::Run(const RunSpec& spec, const Corpus* corpus, const Ranks& ranks) {
  CheckSpec(spec);
  SetThreads(spec.threads);
  state_ = std::make_unique<State>(spec, corpus, ranks);
  // Whatever a step would reject is rejected here.
  State& s = *state_;
  if (const auto refusal =
          s.model.position().Refusal(s.model.parameters(), spec.train_length)) {
    throw Error(*refusal);
  }
  NumScoredSequences(s.task, s.corpus, spec.train_length, /*tokens=*/1);
}

Run::~Run() = default;

const RunSpec& Run::spec() const { return state_->spec; }
int64_t Run::step() const { return state_->step; }
int64_t Run::parameters() const {
  return state_->model.parameters().flat().numel();
}

// The loss is the mean over the scored tokens of the whole batch. A rank has
// the sum over its own sequences, divided by the number of all scored tokens:
// the ranks' losses and gradients add up to those of the whole.
double Run::Step() {
  State& s = *state_;
  SetThreads(s.spec.threads);
  const Share mine = ShareOf(s.ranks, s.BatchSize());
  double totals[] = {0.0, 0.0};  // the loss, and how many ranks failed
  auto& [value, failed] = totals;
  const Attempt attempt([&] {
    // Generates the whole batch, which costs little compared with the step:
    // ranks then need not exchange how many tokens the others score.
    const std::vector<Sequence> whole = TrainingBatch(
        s.task, s.Request(s.train_length), s.BatchSize(), s.spec.seed, s.step);
    const std::span<const Sequence> part = std::span(whole).subspan(
        static_cast<size_t>(mine.first), static_cast<size_t>(mine.count));
    // There are more ranks than sequences, or an encoder was given no blanks.
    if (NumScored(part) == 0) return;
    const Batch batch = ToBatch(part);
    const torch::Tensor loss =
        torch::cross_entropy_loss(s.model.Logits(batch.tokens, batch.rows),
                                  batch.targets, /*weight=*/{},
                                  at::Reduction::Sum) /
        NumScored(whole);
    value = loss.item<double>();
    if (std::isfinite(value)) loss.backward();
  });
  failed = attempt.failed() ? 1.0 : 0.0;
  s.ranks.Sum(totals);
  attempt.Settle(s.ranks, failed > 0.0);
  if (!std::isfinite(value)) {
    throw DivergedError(fmt::format(
        "the training loss of {} is {} at step {}; a lower learning rate than "
        "{} may help",
        s.spec.encoding, value, s.step, s.spec.learning_rate));
  }
  const torch::Tensor& gradient = s.model.parameters().flat_grad();
  s.ranks.Sum(std::span(gradient.data_ptr<float>(),
                        static_cast<size_t>(gradient.numel())));
  s.optimiser.Step(s.LearningRate());
  s.model.position().Project(s.model.parameters());
  ++s.step;
  return value;
}

Evaluation Run::Evaluate(int64_t length, int64_t tokens, int64_t first) const {
  const State& s = *state_;
  SetThreads(s.spec.threads);
  const int64_t count = NumScoredSequences(s.task, s.corpus, length, tokens);
  Evaluation evaluation;
  evaluation.length = length;
  evaluation.refused = s.model.position().Refusal(s.model.parameters(), length);
  if (evaluation.refused) return evaluation;
  torch::NoGradGuard no_grad;
  // The loss, exact answers and scored tokens of each sequence. Ranks take
  // ranges of sequences round-robin. Each number comes from a single rank, so
  // the sums below are the same for any number of ranks.
  const int64_t at_once = std::max<int64_t>(kScoredAtOnce / length, 1);
  const int64_t stretches = (count + at_once - 1) / at_once;
  std::vector<double> scores(static_cast<size_t>(3 * count));
  OnAllRanks(s.ranks, [&] {
    for (int64_t n = s.ranks.rank(); n < stretches; n += s.ranks.size()) {
      const int64_t begin = n * at_once;
      const int64_t taken = std::min(at_once, count - begin);
      const Batch batch = ToBatch(
          ScoredSequences(s.task, s.Request(length), first + begin, taken));
      const torch::Tensor logits = s.model.Logits(batch.tokens, batch.rows);
      const torch::Tensor loss = torch::log_softmax(logits, 1)
                                     .gather(1, batch.targets.unsqueeze(1))
                                     .neg()
                                     .squeeze(1);
      const torch::Tensor exact = logits.argmax(1).eq(batch.targets);
      // Summed in float64, since there are as many terms as tokens.
      const torch::Tensor each =
          torch::stack({loss.to(torch::kDouble), exact.to(torch::kDouble),
                        torch::ones_like(loss, torch::kDouble)},
                       1);
      const torch::Tensor sums =
          torch::zeros({taken, 3}, torch::kDouble)
              .index_add(0, batch.rows.floor_divide(length), each);
      std::copy_n(sums.data_ptr<double>(), 3 * taken,
                  &scores[static_cast<size_t>(3 * begin)]);
    }
  });
  s.ranks.Sum(scores);
  evaluation.blocks.resize(
      static_cast<size_t>(std::min(count, kMostScoreBlocks)));
  BlockScore whole;
  for (int64_t n = 0; n < count; ++n) {
    const double* const score = &scores[static_cast<size_t>(3 * n)];
    BlockScore& block = evaluation.blocks[static_cast<size_t>(
        n * static_cast<int64_t>(evaluation.blocks.size()) / count)];
    for (BlockScore* sum : {&block, &whole}) {
      sum->loss += score[0];
      sum->exact += score[1];
      sum->tokens += score[2];
    }
  }
  evaluation.tokens = static_cast<int64_t>(whole.tokens);
  evaluation.loss = whole.loss / whole.tokens;
  evaluation.accuracy = whole.exact / whole.tokens;
  return evaluation;
}

// CBOR (RFC 8949); the file that contains it has the checksum.
std::string Run::Save() const {
  const State& s = *state_;
  std::string bytes;
  Json::to_cbor({{"spec", Describe(s.spec, s.model.position(), s.corpus)},
                 {"step", s.step},
                 {"extended", s.extended},
                 {"train_length", s.train_length},
                 {"options", s.options},
                 {"optimiser_steps", s.optimiser.steps()},
                 {"parameters", BytesOf(s.model.parameters().flat())},
                 {"moments", BytesOf(s.optimiser.moments())}},
                bytes);
  return bytes;
}

void Run::Load(std::string_view bytes) {
  State& s = *state_;
  try {
    const Json saved = Json::from_cbor(bytes);
    const std::string own = Describe(s.spec, s.model.position(), s.corpus);
    if (saved.at("spec") != own) {
      throw Error(fmt::format(
          "the saved state is of another run: it is of \"{}\", this is \"{}\"",
          saved.at("spec").get<std::string>(), own));
    }
    const torch::Tensor& flat = s.model.parameters().flat();
    const torch::Tensor parameters = NumbersOf(saved.at("parameters"), flat);
    const torch::Tensor moments =
        NumbersOf(saved.at("moments"), s.optimiser.moments());
    auto options =
        saved.at("options").get<std::map<std::string, std::string>>();
    const auto step = saved.at("step").get<int64_t>();
    const auto optimiser_steps = saved.at("optimiser_steps").get<int64_t>();
    const auto extended = saved.at("extended").get<bool>();
    const auto train_length = saved.at("train_length").get<int64_t>();
    s.model.SetOptions(options);
    flat.copy_(parameters);
    s.optimiser.Restore(optimiser_steps, moments);
    s.step = step;
    s.extended = extended;
    s.train_length = train_length;
    s.options = std::move(options);
  } catch (const Json::exception& e) {
    throw Error(
        fmt::format("these bytes are no saved state of a run: {}", e.what()));
  }
}

void Run::Extend(const std::map<std::string, std::string>& options,
                 int64_t train_length) {
  State& s = *state_;
  std::map<std::string, std::string> merged = s.spec.options;
  for (const auto& [name, value] : options) merged[name] = value;
  NumScoredSequences(s.task, s.corpus, train_length, /*tokens=*/1);
  s.model.SetOptions(merged);
  if (const auto refusal =
          s.model.position().Refusal(s.model.parameters(), train_length)) {
    s.model.SetOptions(s.options);
    throw Error(*refusal);
  }
  s.options = std::move(merged);
  s.train_length = train_length;
  s.extended = true;
}

std::vector<PictureData> Run::Pictures(int64_t length) const {
  const State& s = *state_;
  SetThreads(s.spec.threads);
  const Batch batch = ToBatch(
      ScoredSequences(s.task, s.Request(length), /*first=*/0, /*count=*/1));
  return DrawPictures(s.model, batch.tokens);
}

TrainedEncoding Run::Trained(int64_t layer) const {
  torch::NoGradGuard no_grad;
  const State& s = *state_;
  const Position& position = s.model.position();
  return {
      .example = position.Example(),
      .encoding =
          position.Values(s.model.parameters(), layer, s.train_length).Build()};
}

}  // namespace locus::lab

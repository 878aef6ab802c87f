// Training and extension, with checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "lab/study/job.h"
#include "lab/study/stop.h"
#include "lab/train/memory.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Points of a loss curve: as many as a chart can resolve.
constexpr int64_t kCurvePoints = 60;

// The state of a job besides that of the model.
struct Progress {
  std::vector<double> step_seconds =
      {};  // one per step: their number is the step
  Json curve = Json::array();
  double interval_loss = 0;  // sum since the last point of the curve
  int64_t interval_steps = 0;
  Json evaluations = Json::array();
  double peak_memory = 0;

  int64_t steps() const { return static_cast<int64_t>(step_seconds.size()); }

  Json ToJson(const std::string& id) const {
    return {{"id", id},
            {"step_seconds", step_seconds},
            {"curve", curve},
            {"interval_loss", FiniteJson(interval_loss)},
            {"interval_steps", interval_steps},
            {"evaluations", evaluations},
            {"peak_memory", peak_memory}};
  }

  void FromJson(const Json& json) {
    json.at("step_seconds").get_to(step_seconds);
    curve = json.at("curve");
    const Json& loss = json.at("interval_loss");
    interval_loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                   : loss.get<double>();
    json.at("interval_steps").get_to(interval_steps);
    evaluations = json.at("evaluations");
    json.at("peak_memory").get_to(peak_memory);
  }
};

Json EvaluationJson(const Evaluation& e) {
  if (e.refused) return {{"length", e.length}, {"refused", *e.refused}};
  Json blocks = Json::array();
  for (const BlockScore& block : e.blocks) {
    blocks.push_back({FiniteJson(block.loss), block.exact, block.tokens});
  }
  return {{"length", e.length},
          {"loss", FiniteJson(e.loss)},
          {"accuracy", FiniteJson(e.accuracy)},
          {"tokens", e.tokens},
          {"blocks", blocks}};
}

Json PicturesJson(const Run& run, int64_t length) {
  Json pictures = Json::array();
  for (const PictureData& picture : run.Pictures(length)) {
    Json rows = Json::array();
    for (const auto& row : picture.values) {
      Json numbers = Json::array();
      // Six digits are more than a chart can resolve.
      for (const double v : row) {
        numbers.push_back(std::isfinite(v)
                              ? Json(std::stod(fmt::format("{:.6g}", v)))
                              : Json(nullptr));
      }
      rows.push_back(std::move(numbers));
    }
    pictures.push_back({{"encoding", run.spec().encoding},
                        {"seed", run.spec().seed},
                        {"kind", picture.kind},
                        {"title", picture.title},
                        {"x", picture.x_label},
                        {"y", picture.y_label},
                        {"x_values", picture.x_values},
                        {"y_values", picture.y_values},
                        {"values", std::move(rows)}});
  }
  return pictures;
}

// `evaluation` may have no loss: the run diverged, or the encoding is not
// supported.
Json TuningAnswer(const Job& job, const Json& evaluation) {
  return {{"id", job.id},
          {"task", job.spec.task},
          {"encoding", job.spec.encoding},
          {"learning_rate", job.spec.learning_rate},
          {"loss", evaluation.value("loss", Json(nullptr))}};
}

// A model during its job.
class Trainer {
 public:
  // Starts with a run that has taken no steps.
  Trainer(const JobContext& context, Run& run)
      : context_(context),
        ranks_(context.ranks),
        job_(context.job),
        checkpoint_(context.study.CheckpointPath(job_)),
        run_(run) {
    if (job_.kind == JobKind::kExtend) Extend();
    const bool begun = ranks_.first() && std::filesystem::exists(checkpoint_);
    if (!ranks_.Any(begun)) return;
    const Json saved = Read(checkpoint_);
    OnAllRanks(ranks_, [&] {
      progress_.FromJson(saved);
      LoadModel(saved);
    });
  }

  // Returns false if it was stopped on request, after saving.
  bool Train() {
    while (progress_.steps() < Steps()) {
      if (!GoesOn()) return Stop();
      const auto start = Clock::now();
      const double loss = run_.Step();
      Note(loss, SecondsSince(start));
      SaveNowAndThen();
    }
    progress_.peak_memory =
        std::max(progress_.peak_memory, static_cast<double>(PeakBytes()));
    return true;
  }

  bool Evaluate() {
    while (progress_.evaluations.size() < job_.lengths.size()) {
      if (!GoesOn()) return Stop();
      const int64_t length = job_.lengths[progress_.evaluations.size()];
      context_.report(fmt::format("evaluate {}", length));
      progress_.evaluations.push_back(
          EvaluationJson(run_.Evaluate(length, job_.score_tokens, First())));
      SaveNowAndThen();
    }
    return true;
  }

  void Finish() {
    CheckWeights();
    OnAllRanks(ranks_, [&] {
      unsaved_.Rethrow();
      if (!ranks_.first()) return;
      if (job_.keep_model) Save();
      WriteResult(context_, Answer(), Cost());
      if (!job_.keep_model) std::filesystem::remove(checkpoint_);
    });
  }

 private:
  // Steps of this job, without those of the model that it extends.
  int64_t Steps() const {
    return job_.kind == JobKind::kExtend ? job_.fine_tune_steps
                                         : job_.spec.steps;
  }

  // The first scored sequence: those used for tuning on a synthetic task are
  // never scored later. For text, tuning uses a separate corpus.
  int64_t First() const {
    constexpr int64_t kFarAway = int64_t{1} << 40;
    return job_.kind == JobKind::kTune && !FindTask(job_.spec.task).uses_corpus
               ? kFarAway
               : 0;
  }

  void Extend() {
    const Job& base = context_.study.Find(job_.base);
    const Json trained = Read(context_.study.CheckpointPath(base));
    std::map<std::string, std::string> options = {{"scaling", job_.method}};
    if (job_.method != "none") {
      options["factor"] = fmt::format("{}", job_.factor);
      options["original_length"] = fmt::format("{}", job_.spec.train_length);
    }
    OnAllRanks(ranks_, [&] {
      LoadModel(trained);
      run_.Extend(options, FineTuneLength(job_));
    });
  }

  // Reads the first rank's file, on every rank.
  Json Read(const std::filesystem::path& path) const {
    Json read;
    OnAllRanks(ranks_, [&] {
      if (ranks_.first()) read = ReadCheckpoint(path);
    });
    if (ranks_.size() == 1) return read;
    std::string bytes;
    Json::to_cbor(read, bytes);
    return Json::from_cbor(ranks_.FromFirst(bytes));
  }

  void LoadModel(const Json& saved) {
    const auto& bytes = saved.at("model").get_binary();
    run_.Load({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  // Whether all ranks take another step.
  bool GoesOn() const {
    const bool stops = ranks_.Any(StopRequests() > 0 || unsaved_.failed());
    unsaved_.Rethrow();
    return !stops;
  }

  // Ranks with different processors or libraries may diverge, which would not
  // be visible in what the first rank writes.
  void CheckWeights() const {
    const std::vector<std::string> sums =
        ranks_.Gather(ranks_.size() > 1 ? Fingerprint(run_.Save()) : "");
    for (size_t rank = 1; rank < sums.size(); ++rank) {
      if (sums[rank] == sums[0]) continue;
      throw Error(fmt::format(
          "rank {} ends with other weights than rank 0; run all ranks on "
          "machines of one kind, with the same libraries",
          rank));
    }
  }

  void Note(double loss, double seconds) {
    progress_.step_seconds.push_back(seconds);
    progress_.interval_loss += loss;
    ++progress_.interval_steps;
    const int64_t step = progress_.steps();
    if (progress_.interval_steps >=
            std::max<int64_t>(1, Steps() / kCurvePoints) ||
        step == Steps()) {
      const double mean = progress_.interval_loss /
                          static_cast<double>(progress_.interval_steps);
      progress_.curve.push_back({{"step", step}, {"loss", FiniteJson(mean)}});
      progress_.interval_loss = 0;
      progress_.interval_steps = 0;
    }
    context_.report(fmt::format("step {} {:.4f}", step, loss));
  }

  void Save() {
    if (!ranks_.first()) return;
    const auto start = Clock::now();
    Json json = progress_.ToJson(job_.id);
    json["study"] = context_.study.record;
    const std::string model = run_.Save();
    json["model"] = Json::binary({model.begin(), model.end()});
    WriteCheckpoint(checkpoint_, json);
    saved_ = Clock::now();
    save_seconds_ = SecondsSince(start);
  }

  // Saving takes at most a fiftieth of the time, however slow the disk is.
  void SaveNowAndThen() {
    constexpr double kShare = 50;
    const double pause = std::max(context_.save_every, kShare * save_seconds_);
    if (context_.save_every == 0 || SecondsSince(saved_) >= pause) {
      unsaved_ = Attempt([this] { Save(); });
    }
  }

  bool Stop() {
    Save();
    return false;
  }

  Json Answer() const {
    if (job_.kind == JobKind::kExtend) {
      return {
          {"id", job_.id},         {"seed", job_.spec.seed},
          {"method", job_.method}, {"fine_tune_steps", job_.fine_tune_steps},
          {"factor", job_.factor}, {"evaluations", progress_.evaluations}};
    }
    if (job_.kind == JobKind::kTune) {
      return TuningAnswer(job_, progress_.evaluations[0]);
    }
    Json answer = {{"id", job_.id},
                   {"task", job_.spec.task},
                   {"encoding", job_.spec.encoding},
                   {"seed", job_.spec.seed},
                   {"steps", job_.spec.steps},
                   {"learning_rate", run_.spec().learning_rate},
                   {"parameters", run_.parameters()},
                   {"loss_curve", progress_.curve},
                   {"evaluations", progress_.evaluations}};
    if (job_.first_answer) {
      answer["pictures"] = PicturesJson(run_, job_.spec.train_length);
    }
    return answer;
  }

  Json Cost() const {
    const std::vector<double>& seconds = progress_.step_seconds;
    if (seconds.empty()) return Json::object();
    double total = 0;
    for (const double s : seconds) total += s;
    const double median = Quantile(seconds, 0.5);
    const auto tokens =
        static_cast<double>(job_.spec.batch * job_.spec.train_length);
    return {{"train_seconds", total},
            {"seconds_per_step", median},
            {"tokens_per_second", tokens / median},
            {"peak_memory_bytes", progress_.peak_memory}};
  }

  const JobContext& context_;
  const Ranks& ranks_;
  const Job& job_;
  std::filesystem::path checkpoint_;
  Run& run_;
  Progress progress_ = {};
  Clock::time_point saved_ = Clock::now();
  double save_seconds_ = 0;
  Attempt unsaved_ = {};  // the last save; if it failed, the ranks stop
};

// The result for an encoding that does not support this model at any length.
void FinishRefused(const JobContext& context, const std::string& sentence) {
  const Job& job = context.job;
  Json evaluations = Json::array();
  for (const int64_t length : job.lengths) {
    evaluations.push_back({{"length", length}, {"refused", sentence}});
  }
  const Json answer = job.kind == JobKind::kTune
                          ? TuningAnswer(job, evaluations[0])
                          : Json({{"id", job.id},
                                  {"task", job.spec.task},
                                  {"encoding", job.spec.encoding},
                                  {"seed", job.spec.seed},
                                  {"steps", job.spec.steps},
                                  {"refused", sentence},
                                  {"loss_curve", Json::array()},
                                  {"evaluations", evaluations}});
  OnAllRanks(context.ranks, [&] {
    if (!context.ranks.first()) return;
    WriteResult(context, answer, Json::object());
  });
}

// The task's own learning rate, or the best one of its tuning jobs.
double LearningRate(const JobContext& context) {
  const Job& job = context.job;
  double best = job.spec.learning_rate;
  OnAllRanks(context.ranks, [&] {
    if (!context.ranks.first()) return;
    double least = std::numeric_limits<double>::infinity();
    for (const std::string& id : job.tuned_by) {
      const Json answer = ReadSealedJson(
          context.study.ResultPath(context.study.Find(id)))["answer"];
      if (!answer["loss"].is_number() || answer["loss"] >= least) continue;
      least = answer["loss"];
      best = answer["learning_rate"];
    }
  });
  // With all digits, so that every rank takes the same steps.
  return std::stod(context.ranks.FromFirst(fmt::format("{}", best)));
}

// Tuning uses only the training part of the text, and scores its last tenth.
std::optional<Corpus> CorpusOf(const JobContext& context) {
  if (!FindTask(context.job.spec.task).uses_corpus) return {};
  std::optional<Corpus> corpus = OpenCorpus(context.study.settings);
  if (!corpus || context.job.kind != JobKind::kTune) return corpus;
  return Corpus::FromText(corpus->name(), std::string(corpus->train()));
}

}  // namespace

bool TrainAndEvaluate(const JobContext& context) {
  RunSpec spec = context.job.spec;
  spec.learning_rate = LearningRate(context);
  std::optional<Corpus> corpus;
  OnAllRanks(context.ranks, [&] { corpus = CorpusOf(context); });
  std::unique_ptr<Run> run;
  try {
    OnAllRanks(context.ranks, [&] {
      run = std::make_unique<Run>(spec, corpus ? &*corpus : nullptr,
                                  context.ranks);
    });
  } catch (const Error& e) {
    if (context.job.kind == JobKind::kExtend || context.job.keep_model) throw;
    FinishRefused(context, e.what());
    return true;
  }
  Trainer trainer(context, *run);
  try {
    if (!trainer.Train() || !trainer.Evaluate()) return false;
  } catch (const DivergedError& e) {
    // A learning rate that is too high is a result as well.
    if (context.job.kind != JobKind::kTune) throw;
    FinishRefused(context, e.what());
    return true;
  }
  trainer.Finish();
  return true;
}

}  // namespace locus::lab

#include "lab/study/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace locus::lab {
namespace {

// Operations of a forward pass per token of a sequence of `length`: 2 for each
// of the 12 d^2 weights of a layer, 4 d for each visible key.
double TokenWork(const RunSpec& spec, int64_t length) {
  const auto d = static_cast<double>(spec.model_dim);
  const double keys = static_cast<double>(length) *
                      (spec.kind == ModelKind::kDecoder ? 0.5 : 1.0);
  // Embedding and head: as large as the 256 rows of bytes.
  return static_cast<double>(spec.layers) * (24.0 * d * d + 4.0 * d * keys) +
         2.0 * 256.0 * d;
}

double EvaluationWork(const RunSpec& spec, const std::vector<int64_t>& lengths,
                      int64_t tokens) {
  double work = 0;
  for (const int64_t length : lengths) {
    const auto read = static_cast<double>(std::max(tokens, length));
    work += read * TokenWork(spec, length);
  }
  return work;
}

RunSpec SpecOf(const Settings& settings, const TaskSettings& task,
               const std::string& encoding, uint64_t seed) {
  const auto file = settings.files.find(encoding);
  return {.encoding = encoding,
          .file = file == settings.files.end() ? "" : file->second,
          .task = task.name,
          .kind = settings.kind,
          .train_length = task.train_length,
          .batch = task.batch,
          .steps = task.steps,
          .layers = settings.layers,
          .model_dim = settings.model_dim,
          .heads = settings.heads,
          .learning_rate = task.learning_rate,
          .seed = seed,
          .threads = settings.threads};
}

std::string TuningId(const std::string& task, const std::string& encoding,
                     double factor) {
  return fmt::format("tune/{}/{}/{}", task, encoding, factor);
}

// Short runs, scored at the training length on data that are neither trained on
// nor scored later. Their seed is one that no study would use.
void AddTuning(const Settings& settings, const TaskSettings& task,
               std::vector<Job>& jobs) {
  constexpr uint64_t kSeed = 0x74756e65;
  for (const std::string& encoding : task.encodings) {
    for (const double factor : settings.tuning.factors) {
      Job job{.id = TuningId(task.name, encoding, factor),
              .kind = JobKind::kTune,
              .spec = SpecOf(settings, task, encoding, kSeed),
              .lengths = {task.train_length},
              .score_tokens = task.score_tokens};
      job.spec.learning_rate *= factor;
      job.spec.steps = TuningSteps(settings, task);
      job.work = static_cast<double>(job.spec.steps) * StepWork(job.spec) +
                 EvaluationWork(job.spec, job.lengths, job.score_tokens);
      jobs.push_back(std::move(job));
    }
  }
}

void AddTraining(const Settings& settings, const TaskSettings& task,
                 uint64_t seed, std::vector<Job>& jobs) {
  const bool first_task = &task == &settings.tasks.front();
  const std::vector<uint64_t>& extended = settings.extension.seeds;
  for (const std::string& encoding : task.encodings) {
    Job job{.id = fmt::format("{}/{}/{}", task.name, encoding, seed),
            .spec = SpecOf(settings, task, encoding, seed),
            .lengths = task.lengths,
            .score_tokens = task.score_tokens,
            .first_answer = first_task && seed == task.seeds.front(),
            .keep_model = encoding == "rope" &&
                          FindTask(task.name).uses_corpus &&
                          std::ranges::find(extended, seed) != extended.end()};
    for (const double factor : settings.tuning.factors) {
      job.tuned_by.push_back(TuningId(task.name, encoding, factor));
    }
    job.work = static_cast<double>(task.steps) * StepWork(job.spec) +
               EvaluationWork(job.spec, job.lengths, job.score_tokens);
    jobs.push_back(std::move(job));
  }
}

// Zero-shot first: a fine-tuned model is evaluated in the same way.
void AddExtensions(const Settings& settings, const Job& base,
                   std::vector<Job>& jobs) {
  const ExtensionSettings& extension = settings.extension;
  for (const int64_t steps : {int64_t{0}, extension.fine_tune_steps}) {
    for (const std::string& method : extension.methods) {
      Job job = base;
      job.id =
          fmt::format("extend/rope/{}/{}/{}", base.spec.seed, method, steps);
      job.kind = JobKind::kExtend;
      job.first_answer = job.keep_model = false;
      job.base = base.id;
      job.method = method;
      job.factor = extension.factor;
      job.fine_tune_steps = steps;
      RunSpec longer = base.spec;
      longer.train_length = FineTuneLength(job);
      job.work = static_cast<double>(steps) * StepWork(longer) +
                 EvaluationWork(job.spec, job.lengths, job.score_tokens);
      jobs.push_back(std::move(job));
    }
    if (extension.fine_tune_steps == 0) return;
  }
}

// The models whose steps are measured at one length.
std::vector<RunSpec> CostModels(const Settings& settings, int64_t length) {
  const CostSettings& cost = settings.cost;
  const TaskSettings& task = settings.tasks.front();
  std::vector<RunSpec> models;
  for (const std::string& encoding : cost.encodings) {
    for (const AttentionPath path :
         {AttentionPath::kFused, AttentionPath::kMaterialised}) {
      RunSpec spec = SpecOf(settings, task, encoding, task.seeds.front());
      spec.path = path;
      spec.train_length = length;
      spec.batch = std::max<int64_t>(1, cost.tokens / length);
      models.push_back(std::move(spec));
    }
  }
  return models;
}

}  // namespace

double StepWork(const RunSpec& spec) {
  // The backward pass costs twice the forward pass.
  return 3.0 * static_cast<double>(spec.batch * spec.train_length) *
         TokenWork(spec, spec.train_length);
}

std::vector<std::string> NeedsOf(const Job& job) {
  std::vector<std::string> ids = job.tuned_by;
  if (!job.base.empty()) ids.push_back(job.base);
  return ids;
}

int64_t FineTuneLength(const Job& job) {
  return static_cast<int64_t>(static_cast<double>(job.spec.train_length) *
                              job.factor);
}

std::vector<Job> MakePlan(const Settings& settings) {
  std::vector<Job> jobs;
  size_t rounds = 0;
  for (const TaskSettings& task : settings.tasks) {
    rounds = std::max(rounds, task.seeds.size());
  }
  for (size_t round = 0; round < rounds; ++round) {
    for (const TaskSettings& task : settings.tasks) {
      if (round >= task.seeds.size()) continue;
      if (round == 0) AddTuning(settings, task, jobs);
      const size_t first = jobs.size();
      AddTraining(settings, task, task.seeds[round], jobs);
      std::vector<Job> bases;
      std::copy_if(jobs.begin() + static_cast<std::ptrdiff_t>(first),
                   jobs.end(), std::back_inserter(bases),
                   [](const Job& job) { return job.keep_model; });
      for (const Job& base : bases) AddExtensions(settings, base, jobs);
    }
  }

  for (const int64_t length : settings.cost.lengths) {
    Job cost{.id = fmt::format("cost/{}", length),
             .kind = JobKind::kCost,
             .models = CostModels(settings, length),
             .rounds = settings.cost.rounds};
    for (const RunSpec& spec : cost.models) {
      cost.work += static_cast<double>(cost.rounds + 1) * StepWork(spec);
    }
    cost.spec = cost.models.front();
    jobs.push_back(std::move(cost));
  }
  return jobs;
}

}  // namespace locus::lab

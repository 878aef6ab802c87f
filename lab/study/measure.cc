// Measures seconds and memory of a training step.
#include <chrono>
#include <optional>

#include "lab/study/job.h"
#include "lab/train/cost.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

Json RowOf(const RunSpec& spec) {
  return {{"length", spec.train_length},
          {"encoding", spec.encoding},
          {"path", PathName(spec.path)}};
}

// The error of an encoding that does not support such a model, if any.
std::optional<std::string> Refusal(const RunSpec& spec, const Corpus* corpus) {
  try {
    // Some encodings report it only at their first step.
    Run(spec, corpus).Step();
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

void Measure(const JobContext& context) {
  const std::optional<Corpus> opened = OpenCorpus(context.study.settings);
  const Corpus* corpus = opened ? &*opened : nullptr;
  std::vector<RunSpec> served;
  Json refused = Json::array();
  for (const RunSpec& spec : context.job.models) {
    if (const auto sentence = Refusal(spec, corpus)) {
      refused.push_back(RowOf(spec));
      refused.back()["refused"] = *sentence;
    } else {
      served.push_back(spec);
    }
  }
  const std::vector<StepCost> costs =
      MeasureSteps(served, corpus, static_cast<int>(context.job.rounds));
  Json rows = Json::array();
  for (size_t n = 0; n < served.size(); ++n) {
    Json row = RowOf(served[n]);
    row["seconds_per_step"] = costs[n].seconds;
    row["spread"] = {costs[n].low, costs[n].high};
    row["peak_memory_bytes"] = costs[n].peak_memory_bytes;
    rows.push_back(std::move(row));
  }
  WriteResult(context, {{"id", context.job.id}, {"refused", refused}},
              {{"rows", rows}});
}

double MeasureRate(const Study& study, const Ranks& ranks) {
  std::optional<Corpus> corpus;
  OnAllRanks(ranks, [&] { corpus = OpenCorpus(study.settings); });
  const RunSpec& spec = study.plan.front().spec;
  Run run(spec, corpus ? &*corpus : nullptr, ranks);
  run.Step();  // allocates memory
  constexpr int kSteps = 5;
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < kSteps; ++n) run.Step();
  return kSteps * StepWork(spec) /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
             .count();
}

}  // namespace locus::lab

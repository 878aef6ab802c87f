#include "lab/report/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace locus::lab {
namespace {

Json IntervalJson(const Interval& interval) {
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  return {{"difference", interval.mean},
          {"low", number(interval.low)},
          {"high", number(interval.high)}};
}

// Encodings that take part in a ranking at one length, best first.
struct Ranked {
  std::string encoding = {};
  double mean = 0;
};

std::vector<Ranked> Ranking(const Evidence& evidence, const TaskSettings& task,
                            int64_t length) {
  const std::string metric = RankedBy(task);
  std::vector<Ranked> ranked;
  for (const std::string& encoding : task.encodings) {
    if (!Learned(evidence, task, encoding)) continue;
    const auto mean =
        evidence.Mean(SubjectOf(task.name, encoding), length, metric);
    if (mean) ranked.push_back({encoding, mean->mean});
  }
  const double sign = metric == "loss" ? 1.0 : -1.0;
  std::ranges::stable_sort(ranked, {},
                           [&](const Ranked& r) { return sign * r.mean; });
  return ranked;
}

// The encodings that do not differ significantly from the best, if any do.
std::vector<std::string> BestOf(const Evidence& evidence,
                                const TaskSettings& task, int64_t length) {
  const std::vector<Ranked> ranked = Ranking(evidence, task, length);
  std::vector<std::string> best;
  for (const Ranked& one : ranked) {
    const auto difference = evidence.Difference(
        {SubjectOf(task.name, one.encoding), length},
        {SubjectOf(task.name, ranked.front().encoding), length},
        RankedBy(task));
    if (!difference || !difference->ExcludesZero()) {
      best.push_back(one.encoding);
    }
  }
  if (best.size() == ranked.size()) best.clear();
  return best;
}

}  // namespace

std::string SubjectOf(const std::string& task, const std::string& encoding) {
  return task + "/" + encoding;
}

std::string ExtensionSubject(const std::string& method, int64_t steps) {
  return fmt::format("extend/{}/{}", method, steps);
}

void Evidence::Add(const std::string& subject, uint64_t seed,
                   Json& evaluations) {
  for (Json& e : evaluations) {
    Scored& scored = scores_[subject][e["length"].get<int64_t>()];
    if (e.contains("refused")) scored.refused = true;
    if (!e.contains("blocks")) continue;
    std::vector<BlockScore>& blocks = scored.seeds[seed];
    for (const Json& block : e["blocks"]) {
      blocks.push_back(
          {.loss = block[0].is_number() ? block[0].get<double>() : NAN,
           .exact = block[1],
           .tokens = block[2]});
    }
    e.erase("blocks");
  }
}

const Evidence::Scored* Evidence::Find(const Place& place) const {
  const auto subject = scores_.find(place.subject);
  if (subject == scores_.end()) return nullptr;
  const auto at = subject->second.find(place.length);
  return at == subject->second.end() ? nullptr : &at->second;
}

// The sums of seeds in which every block has a number.
std::map<uint64_t, std::vector<BlockSum>> Evidence::SumsOf(
    const Scored& scored, const std::string& metric) {
  std::map<uint64_t, std::vector<BlockSum>> sums;
  for (const auto& [seed, blocks] : scored.seeds) {
    std::vector<BlockSum> own;
    for (const BlockScore& block : blocks) {
      const double sum = metric == "loss" ? block.loss : block.exact;
      // A block of an encoder's text may have no blanks.
      if (block.tokens > 0) own.push_back({sum, block.tokens});
    }
    if (!own.empty() && std::ranges::all_of(own, [](const BlockSum& b) {
          return std::isfinite(b.sum);
        })) {
      sums[seed] = std::move(own);
    }
  }
  return sums;
}

std::optional<Interval> Evidence::Mean(const std::string& subject,
                                       int64_t length,
                                       const std::string& metric) const {
  const Scored* scored = Find({subject, length});
  if (scored == nullptr) return {};
  Scores scores;
  for (auto& [seed, sums] : SumsOf(*scored, metric)) {
    scores.push_back(std::move(sums));
  }
  if (scores.empty()) return {};
  return MeanInterval(scores);
}

std::optional<Interval> Evidence::Difference(const Place& a, const Place& b,
                                             const std::string& metric) const {
  const Scored* scored_a = Find(a);
  const Scored* scored_b = Find(b);
  if (scored_a == nullptr || scored_b == nullptr) return {};
  const auto sums_b = SumsOf(*scored_b, metric);
  Scores scores_a;
  Scores scores_b;
  for (const auto& [seed, sums] : SumsOf(*scored_a, metric)) {
    const auto other = sums_b.find(seed);
    if (other == sums_b.end()) continue;
    scores_a.push_back(sums);
    scores_b.push_back(other->second);
  }
  if (scores_a.empty()) return {};
  return DifferenceInterval(scores_a, scores_b);
}

size_t Evidence::NumSeeds(const Place& place, const std::string& metric) const {
  const Scored* scored = Find(place);
  return scored == nullptr ? 0 : SumsOf(*scored, metric).size();
}

bool Evidence::Refuses(const Place& place) const {
  const Scored* scored = Find(place);
  return scored != nullptr && scored->refused;
}

bool Learned(const Evidence& evidence, const TaskSettings& task,
             const std::string& encoding) {
  if (RankedBy(task) == "loss") return true;
  const auto own = evidence.Mean(SubjectOf(task.name, encoding),
                                 task.train_length, "accuracy");
  // A study may omit the training length.
  const bool scored =
      std::ranges::find(task.lengths, task.train_length) != task.lengths.end();
  return !scored || (own && own->mean >= kLearnedShare);
}

std::string RankedBy(const TaskSettings& task) {
  return FindTask(task.name).uses_corpus ? "loss" : "accuracy";
}

Json SummaryJson(const Settings& settings, const Evidence& evidence) {
  Json summary = Json::array();
  for (const TaskSettings& task : settings.tasks) {
    for (const std::string& encoding : task.encodings) {
      const std::string subject = SubjectOf(task.name, encoding);
      const bool learned = Learned(evidence, task, encoding);
      for (const int64_t length : task.lengths) {
        for (const std::string metric : {"loss", "accuracy"}) {
          const auto mean = evidence.Mean(subject, length, metric);
          if (!mean) continue;
          // A single block of a single seed has no interval.
          const bool known = std::isfinite(mean->low);
          summary.push_back(
              {{"task", task.name},
               {"encoding", encoding},
               {"length", length},
               {"metric", metric},
               {"mean", mean->mean},
               {"low", known ? mean->low : mean->mean},
               {"high", known ? mean->high : mean->mean},
               {"seeds", evidence.NumSeeds({subject, length}, metric)},
               {"learned", learned},
               {"best", false}});
        }
      }
    }
    for (const int64_t length : task.lengths) {
      const auto best = BestOf(evidence, task, length);
      for (Json& row : summary) {
        if (row["task"] == task.name && row["length"] == length &&
            row["metric"] == RankedBy(task)) {
          row["best"] =
              std::ranges::find(best, row["encoding"].get<std::string>()) !=
              best.end();
        }
      }
    }
  }
  return summary;
}

Json RankingJson(const Settings& settings, const Evidence& evidence) {
  Json all = Json::array();
  for (const TaskSettings& task : settings.tasks) {
    const std::string metric = RankedBy(task);
    for (const int64_t length : task.lengths) {
      const std::vector<Ranked> ranked = Ranking(evidence, task, length);
      if (ranked.empty()) continue;
      Json places = Json::array();
      for (size_t n = 0; n < ranked.size(); ++n) {
        Json place = {{"encoding", ranked[n].encoding},
                      {"mean", ranked[n].mean}};
        const auto next =
            n + 1 == ranked.size()
                ? std::nullopt
                : evidence.Difference(
                      {SubjectOf(task.name, ranked[n].encoding), length},
                      {SubjectOf(task.name, ranked[n + 1].encoding), length},
                      metric);
        if (next) {
          place["to_next"] = IntervalJson(*next);
          place["to_next"]["significant"] = next->ExcludesZero();
        }
        places.push_back(std::move(place));
      }
      all.push_back({{"task", task.name},
                     {"length", length},
                     {"metric", metric},
                     {"places", std::move(places)}});
    }
  }
  return all;
}

}  // namespace locus::lab

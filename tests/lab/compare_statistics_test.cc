// Intervals against closed forms, and the conclusions from a study's scores.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lab/report/evidence.h"
#include "lab/report/statistics.h"
#include "lab/tasks/random.h"

namespace locus::lab {
namespace {

// Blocks with noise of `sigma`, seeds with noise of `seed_sigma`.
Scores Noisy(uint64_t name, size_t seeds, size_t blocks, double mean,
             double sigma, double seed_sigma) {
  Random random("noisy", {name});
  Scores scores(seeds);
  for (auto& seed : scores) {
    const double own = mean + seed_sigma * random.Normal();
    for (size_t b = 0; b < blocks; ++b) {
      seed.push_back(
          {.sum = 10 * (own + sigma * random.Normal()), .tokens = 10});
    }
  }
  return scores;
}

TEST(StatisticsTest, EqualBlocksGiveStudentsIntervalOverSeeds) {
  const Scores scores = {{{1, 1}, {1, 1}}, {{2, 1}, {2, 1}}, {{6, 1}, {6, 1}}};
  const Interval interval = MeanInterval(scores);
  EXPECT_DOUBLE_EQ(interval.mean, 3);
  // t(2) s / sqrt(3), s^2 = 7; a thousand replicates estimate it to a few
  // percent.
  const double half = 4.303 * std::sqrt(7.0 / 3.0);
  EXPECT_NEAR(interval.high - interval.mean, half, 0.1 * half);
  EXPECT_DOUBLE_EQ(interval.mean - interval.low, interval.high - interval.mean);
}

TEST(StatisticsTest, OneSeedIsResampledByBlocks) {
  const Scores scores = Noisy(1, 1, 32, 2.0, 0.5, 0.0);
  double squares = 0;
  const Interval interval = MeanInterval(scores);
  for (const BlockSum& block : scores[0]) {
    squares += std::pow(block.sum / block.tokens - interval.mean, 2);
  }
  const double half = 2.04 * std::sqrt(squares / 31 / 32);
  EXPECT_NEAR(interval.high - interval.mean, half, 0.1 * half);
}

TEST(StatisticsTest, IntervalsCoverTheTruthAboutAsOftenAsTheySay) {
  int covered = 0;
  constexpr int kStudies = 200;
  for (int n = 0; n < kStudies; ++n) {
    const Interval interval =
        MeanInterval(Noisy(static_cast<uint64_t>(n), 4, 16, 1.0, 0.3, 0.2));
    covered += interval.low <= 1.0 && 1.0 <= interval.high ? 1 : 0;
  }
  // 95 % of 200, minus four standard deviations; it may be conservative.
  EXPECT_GE(covered, 178);
}

TEST(StatisticsTest, DifferencesArePairedInSeedsAndBlocks) {
  const Scores a = Noisy(3, 3, 16, 2.0, 0.5, 0.5);
  Scores b = a;
  for (auto& seed : b) {
    for (BlockSum& block : seed) block.sum += 0.01 * block.tokens;
  }
  const Interval difference = DifferenceInterval(a, b);
  EXPECT_NEAR(difference.mean, -0.01, 1e-12);
  EXPECT_TRUE(difference.ExcludesZero());
  EXPECT_LT(difference.high - difference.low, 1e-9);
  EXPECT_FALSE(DifferenceInterval(a, a).ExcludesZero());
  // The means themselves cannot be distinguished.
  EXPECT_LT(MeanInterval(b).low, MeanInterval(a).mean);
}

TEST(StatisticsTest, OneBlockOfOneSeedHasNoInterval) {
  const Interval interval = MeanInterval({{{3, 2}}});
  EXPECT_DOUBLE_EQ(interval.mean, 1.5);
  EXPECT_FALSE(std::isfinite(interval.low));
  EXPECT_FALSE(interval.ExcludesZero());
}

// Evaluations at one length, with this loss and this share of correct answers.
Json Evaluated(int64_t length, double loss, double right, uint64_t seed) {
  Random random("evaluated", {seed, static_cast<uint64_t>(length)});
  Json blocks = Json::array();
  for (int b = 0; b < 16; ++b) {
    const double noise = 0.01 * random.Normal();
    blocks.push_back({100 * (loss + noise), 100 * right, 100.0});
  }
  return {{"length", length}, {"loss", loss}, {"blocks", blocks}};
}

struct Found {
  Settings settings = {};
  Evidence evidence = {};
};

// A task with these encodings: loss and share of correct answers at 1x and 4x.
struct Model {
  const char* encoding;
  double loss[2];
  double right[2];
};
Found Study(const char* task, std::initializer_list<Model> models) {
  Found found;
  found.settings.tasks = {{.name = task,
                           .seeds = {1, 2, 3},
                           .train_length = 64,
                           .lengths = {64, 256}}};
  for (const Model& model : models) {
    found.settings.tasks[0].encodings.emplace_back(model.encoding);
    for (const uint64_t seed : {1, 2, 3}) {
      // The same noise for every model: a shared seed.
      Json evaluations = {Evaluated(64, model.loss[0], model.right[0], seed),
                          Evaluated(256, model.loss[1], model.right[1], seed)};
      found.evidence.Add(SubjectOf(task, model.encoding), seed, evaluations);
      EXPECT_FALSE(evaluations[0].contains("blocks"));
    }
  }
  return found;
}

bool IsBest(const Json& summary, const std::string& encoding, int64_t length,
            const std::string& metric) {
  for (const Json& row : summary) {
    if (row["encoding"] == encoding && row["length"] == length &&
        row["metric"] == metric) {
      return row["best"];
    }
  }
  ADD_FAILURE() << encoding;
  return false;
}

TEST(EvidenceTest, MarksTheBestAndThoseNotToldApart) {
  const Found found = Study("text", {{"alibi", {2.0, 2.0}, {}},
                                     {"t5", {2.0, 2.0}, {}},
                                     {"rope", {1.9, 2.5}, {}}});
  const Json summary = SummaryJson(found.settings, found.evidence);
  EXPECT_TRUE(IsBest(summary, "rope", 64, "loss"));
  EXPECT_FALSE(IsBest(summary, "alibi", 64, "loss"));
  EXPECT_TRUE(IsBest(summary, "alibi", 256, "loss"));
  EXPECT_TRUE(IsBest(summary, "t5", 256, "loss"));
  EXPECT_FALSE(IsBest(summary, "rope", 256, "loss"));
  const Json ranking = RankingJson(found.settings, found.evidence);
  const Json& places = ranking[1]["places"];
  EXPECT_EQ(places[2]["encoding"], "rope");
  EXPECT_EQ(places[0]["to_next"]["significant"], false);
  EXPECT_EQ(places[1]["to_next"]["significant"], true);
  EXPECT_NEAR(places[1]["to_next"]["difference"].get<double>(), -0.5, 1e-9);
}

TEST(EvidenceTest, TasksThatNobodyLearnedHaveNoBest) {
  const Found found = Study(
      "sort", {{"alibi", {1, 1}, {0.5, 0.4}}, {"rope", {1, 1}, {0.3, 0.1}}});
  for (const Json& row : SummaryJson(found.settings, found.evidence)) {
    EXPECT_EQ(row["learned"], false);
    EXPECT_EQ(row["best"], false);
  }
  EXPECT_TRUE(RankingJson(found.settings, found.evidence).empty());
}

TEST(EvidenceTest, ModelsThatDidNotLearnTakeNoPart) {
  const Found found = Study("copy", {{"alibi", {1, 1}, {0.95, 0.5}},
                                     {"t5", {1, 1}, {0.99, 0.7}},
                                     {"rope", {1, 1}, {0.4, 0.9}}});
  const Json summary = SummaryJson(found.settings, found.evidence);
  EXPECT_TRUE(IsBest(summary, "t5", 256, "accuracy"));
  EXPECT_FALSE(IsBest(summary, "rope", 256, "accuracy"));
  EXPECT_EQ(RankingJson(found.settings, found.evidence)[1]["places"].size(), 2);
}

std::string Verdict(const Json& claims, const std::string& words) {
  for (const Json& claim : claims) {
    if (claim["claim"].get<std::string>().find(words) != std::string::npos) {
      return claim["agrees"];
    }
  }
  return "absent";
}

TEST(ClaimsTest, TellsAgreementFromDisagreementAndChance) {
  const Found found = Study("text", {{"sinusoidal", {2.0, 3.0}, {}},
                                     {"rope", {2.0, 2.5}, {}},
                                     {"t5", {2.0, 2.5}, {}},
                                     {"alibi", {2.0, 2.6}, {}}});
  const Json claims = ClaimsJson(found.settings, found.evidence);
  EXPECT_EQ(Verdict(claims, "alibi has a lower loss than t5"), "no");
  EXPECT_EQ(Verdict(claims, "t5 has a lower loss than rope"), "inconclusive");
  EXPECT_EQ(Verdict(claims, "rope has a lower loss than sinusoidal"), "yes");
  EXPECT_EQ(Verdict(claims, "sinusoidal generalises"), "yes");
  EXPECT_EQ(Verdict(claims, "alibi generalises"), "no");
  EXPECT_EQ(Verdict(claims, "YaRN"), "absent");
}

}  // namespace
}  // namespace locus::lab

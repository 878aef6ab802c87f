// Runs shared by several ranks, compared with runs of a single process. Under
// mpirun every rank runs every test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/ranks/mpi.h"
#include "lab/train/model.h"
#include "lab/train/run.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

using LabRun = lab::Run;  // tests have a method Run as well

// Not divisible by 3 or 4 ranks.
constexpr int64_t kBatch = 10;

const Corpus& Text() {
  static const Corpus corpus = [] {
    Random random(1);
    std::string text;
    for (int i = 0; i < 50000; ++i) {
      text += static_cast<char>('a' + random.Below(26));
      if (random.Below(5) == 0) text += ' ';
    }
    return Corpus::FromText("letters", std::move(text));
  }();
  return corpus;
}

RunSpec Small(const std::string& task, const std::string& encoding) {
  RunSpec spec = DefaultSpec(task);
  spec.encoding = encoding;
  spec.train_length = 16;
  spec.batch = kBatch;
  spec.steps = 20;
  spec.layers = 1;
  spec.model_dim = 32;
  spec.heads = 2;
  return spec;
}

// The optimiser's first moment after one step, the first row of its moments, is
// the clipped gradient times a constant.
std::vector<float> FirstGradient(const RunSpec& spec, const Ranks& ranks) {
  LabRun run(spec, &Text(), ranks);
  run.Step();
  const auto bytes =
      nlohmann::json::from_cbor(run.Save()).at("moments").get_binary();
  std::vector<float> mean(static_cast<size_t>(run.parameters()));
  std::memcpy(mean.data(), bytes.data(), mean.size() * sizeof(float));
  return mean;
}

// Sizes of the parameters, in the order of the gradient.
std::vector<ParameterInfo> InfosOf(const RunSpec& spec) {
  return Model({.position = {.encoding = spec.encoding,
                             .kind = spec.kind,
                             .layers = spec.layers,
                             .heads = spec.heads,
                             .head_dim = spec.model_dim / spec.heads,
                             .train_length = spec.train_length},
                .vocabulary = FindTask(spec.task).vocabulary,
                .seed = spec.seed})
      .parameters()
      .infos();
}

class RanksTest : public testing::Test {
 protected:
  MpiRanks ranks_{MPI_COMM_WORLD, /*deadline_seconds=*/60.0};
};

class TrainingTest
    : public RanksTest,
      public testing::WithParamInterface<std::tuple<std::string, std::string>> {
 protected:
  RunSpec Spec() const {
    return Small(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

// An element of the gradient is a sum over the tokens of the batch. Ranks group
// its terms differently, which changes each partial sum by half a unit in its
// last place: if rounding is random, in total by the square root of the number
// of tokens times that of the largest partial sum. Four times this leaves room
// for the layers that the gradient passes through.
TEST_P(TrainingTest, FirstGradientIsThatOfOneProcess) {
  const RunSpec spec = Spec();
  const std::vector<float> alone = FirstGradient(spec, SingleProcess());
  const std::vector<float> shared = FirstGradient(spec, ranks_);
  ASSERT_EQ(alone.size(), shared.size());
  const double tolerance =
      4.0 * std::sqrt(static_cast<double>(spec.batch * spec.train_length)) *
      std::numeric_limits<float>::epsilon();
  size_t at = 0;
  for (const ParameterInfo& info : InfosOf(spec)) {
    double largest = 0, difference = 0;
    for (int64_t n = c10::multiply_integers(info.shape); n > 0; --n, ++at) {
      largest = std::max(largest, std::abs(double{alone[at]}));
      difference = std::max(difference,
                            std::abs(double{alone[at]} - double{shared[at]}));
    }
    EXPECT_GT(largest, 0.0) << info.name;
    EXPECT_LE(difference, tolerance * largest) << info.name;
  }
  EXPECT_EQ(at, alone.size());
}

TEST_P(TrainingTest, HasTheSameBitsOnEveryRankAndFromRunToRun) {
  const auto train = [&] {
    LabRun run(Spec(), &Text(), ranks_);
    std::string losses;
    for (int n = 0; n < 5; ++n) losses += std::to_string(run.Step()) + " ";
    return losses + run.Save();
  };
  const std::string once = train();
  EXPECT_EQ(train(), once);
  for (const std::string& other : ranks_.Gather(once)) EXPECT_EQ(other, once);
}

TEST_P(TrainingTest, ScoresToTheBitsOfOneProcess) {
  LabRun alone(Spec(), &Text());
  for (int n = 0; n < 3; ++n) alone.Step();
  LabRun shared(Spec(), &Text(), ranks_);
  shared.Load(alone.Save());
  // One range of sequences, several, and a shorter last one.
  for (const int64_t length : {16, 512, 1000}) {
    const Evaluation a = alone.Evaluate(length, 9000);
    const Evaluation b = shared.Evaluate(length, 9000);
    EXPECT_EQ(a.loss, b.loss) << length;
    EXPECT_EQ(a.accuracy, b.accuracy) << length;
    EXPECT_EQ(a.tokens, b.tokens) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, TrainingTest,
                         testing::Combine(testing::Values("text", "count"),
                                          testing::Values("t5", "rope")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::get<1>(info.param);
                         });

TEST_F(RanksTest, SharesCoverEverythingOnce) {
  for (const int64_t total : {0, 1, 10, 12, 1001}) {
    const Share mine = ShareOf(ranks_, total);
    int64_t next = 0;
    for (const std::string& text : ranks_.Gather(
             std::to_string(mine.first) + " " + std::to_string(mine.count))) {
      const size_t blank = text.find(' ');
      EXPECT_EQ(std::stoll(text), next);
      const int64_t count = std::stoll(text.substr(blank));
      EXPECT_LE(std::abs(count - total / ranks_.size()), 1);
      next += count;
    }
    EXPECT_EQ(next, total);
  }
}

// The first rank does all the work, and the others add zeros.
TEST_F(RanksTest, RanksWithoutSequencesChangeNoBit) {
  RunSpec spec = Small("count", "rope");
  spec.batch = 1;
  LabRun alone(spec, nullptr);
  LabRun shared(spec, nullptr, ranks_);
  for (int n = 0; n < 3; ++n) EXPECT_EQ(alone.Step(), shared.Step());
  EXPECT_EQ(alone.Save(), shared.Save());
}

// An encoder's sequence of eight bytes often has no blanks.
TEST_F(RanksTest, SequencesWithoutAQuestionCountForNothing) {
  RunSpec spec = Small("text", "none");
  spec.kind = ModelKind::kEncoder;
  spec.train_length = 8;
  spec.batch = ranks_.size();
  LabRun alone(spec, &Text());
  LabRun shared(spec, &Text(), ranks_);
  // Rounding errors grow from step to step; a wrong weight shows in the first
  // digits.
  for (int n = 0; n < 4; ++n) EXPECT_NEAR(alone.Step(), shared.Step(), 1e-5);
}

TEST_F(RanksTest, WhatOneFindsWrongAllThrow) {
  const int last = ranks_.size() - 1;
  const auto work = [&] {
    if (ranks_.rank() == last) throw Error("no more tea");
  };
  if (ranks_.rank() == last) {
    EXPECT_THROW(OnAllRanks(ranks_, work), Error);
  } else {
    try {
      OnAllRanks(ranks_, work);
      ADD_FAILURE() << "the others went on";
    } catch (const RankFailed& e) {
      EXPECT_EQ(e.what(), "rank " + std::to_string(last) + ": no more tea");
    }
  }
  EXPECT_NO_THROW(OnAllRanks(ranks_, [] {}));
  EXPECT_TRUE(ranks_.Any(ranks_.rank() == last));
  EXPECT_FALSE(ranks_.Any(false));
  EXPECT_EQ(ranks_.FromFirst(std::to_string(ranks_.rank())), "0");
  EXPECT_EQ(OnFirstRank(ranks_, [&] { return 40 + ranks_.rank(); }), 40);
}

}  // namespace
}  // namespace locus::lab

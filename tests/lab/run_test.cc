// Runs: what they share, what they depend on, and saving.
#include "lab/train/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/train/cost.h"
#include "lab/train/model.h"
#include "locus/descriptor.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

using LabRun = lab::Run;  // tests have a method Run as well

RunSpec Small(const std::string& encoding) {
  RunSpec spec = DefaultSpec("count");
  spec.encoding = encoding;
  spec.train_length = 16;
  spec.batch = 8;
  spec.steps = 20;
  spec.layers = 1;
  spec.model_dim = 32;
  spec.heads = 2;
  return spec;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const EncodingInfo& info : Encodings()) names.emplace_back(info.name);
  return names;
}

class EveryEncodingTest : public testing::TestWithParam<std::string> {};

TEST_P(EveryEncodingTest, TrainsBothKindsOfModel) {
  for (const ModelKind kind : {ModelKind::kDecoder, ModelKind::kEncoder}) {
    RunSpec spec = Small(GetParam());
    spec.kind = kind;
    LabRun run(spec, nullptr);
    const double before = run.Evaluate(16, 256).loss;
    for (int i = 0; i < 20; ++i) run.Step();
    const Evaluation score = run.Evaluate(16, 256);
    EXPECT_LT(score.loss, before);
    EXPECT_EQ(score.length, 16);
    EXPECT_EQ(score.tokens, 256 / 16 * (16 - 5));  // the first five ask nothing
    EXPECT_FALSE(score.refused);
    EXPECT_FALSE(run.Pictures(16).empty());
  }
}

// Everything except the encoding has the same initial values, and the data of a
// step are the same for any initial values.
TEST_P(EveryEncodingTest, SharesTheStartOfEverythingElse) {
  const auto model = [](const std::string& encoding, uint64_t seed) {
    return Model({.position = {.encoding = encoding,
                               .heads = 2,
                               .head_dim = 16,
                               .train_length = 16},
                  .vocabulary = 10,
                  .seed = seed});
  };
  const Model plain = model("none", 4), other = model(GetParam(), 4);
  for (const ParameterInfo& info : plain.parameters().infos()) {
    EXPECT_TRUE(
        plain.parameters()[info.name].equal(other.parameters()[info.name]))
        << info.name;
  }
  EXPECT_FALSE(plain.parameters()["embedding"].equal(
      model("none", 5).parameters()["embedding"]));
}

TEST_P(EveryEncodingTest, ContinuesFromASavedStateToTheBit) {
  LabRun whole(Small(GetParam()), nullptr);
  for (int i = 0; i < 3; ++i) whole.Step();
  const std::string saved = whole.Save();
  LabRun resumed(Small(GetParam()), nullptr);
  resumed.Load(saved);
  EXPECT_EQ(resumed.step(), 3);
  EXPECT_EQ(resumed.Save(), saved);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(whole.Step(), resumed.Step());
  EXPECT_EQ(whole.Save(), resumed.Save());
  EXPECT_EQ(whole.Evaluate(16, 64).loss, resumed.Evaluate(16, 64).loss);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryEncodingTest, testing::ValuesIn(Names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// What the explorer shows: trained parameters match the example of the
// descriptor that Trained returns, and differ from the initial ones.
TEST_P(EveryEncodingTest, GivesItsTrainedParameters) {
  LabRun run(Small(GetParam()), nullptr);
  const auto numbers = [&] {
    std::vector<double> all;
    for (const Param& param : run.Trained(0).encoding->Params()) {
      const std::vector<double> values = param.value.ToVector();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<double> start = numbers();
  for (int i = 0; i < 3; ++i) run.Step();
  const TrainedEncoding trained = run.Trained(0);
  const auto example =
      FindVariant(GetParam()).info->example(trained.example)->Params();
  ASSERT_EQ(example.size(), trained.encoding->Params().size());
  for (size_t n = 0; n < example.size(); ++n) {
    EXPECT_EQ(example[n].name, trained.encoding->Params()[n].name);
  }
  if (!example.empty()) {
    EXPECT_NE(numbers(), start);
  }
}

TEST(RunTest, ScoringDependsOnNothingButTheWeights) {
  LabRun run(Small("rope"), nullptr);
  run.Step();
  const double before = run.Evaluate(32, 128).loss;
  run.Evaluate(16, 64);
  run.Pictures(16);
  EXPECT_EQ(run.Evaluate(32, 128).loss, before);
  LabRun other(Small("rope"), nullptr);
  other.Evaluate(16, 64);
  other.Step();
  EXPECT_EQ(other.Evaluate(32, 128).loss, before);
}

TEST(RunTest, RefusesLengthsThatTheEncodingRefuses) {
  for (const char* name : {"learned", "tupe", "key-offset", "swin"}) {
    LabRun run(Small(name), nullptr);
    const Evaluation score = run.Evaluate(40, 80);
    ASSERT_TRUE(score.refused) << name;
    EXPECT_NE(score.refused->find("39"), std::string::npos) << *score.refused;
    EXPECT_EQ(score.tokens, 0);
  }
  for (const char* name : {"none", "sinusoidal", "shaw", "deberta", "t5",
                           "alibi", "rope", "transformer-xl", "fire"}) {
    LabRun run(Small(name), nullptr);
    EXPECT_FALSE(run.Evaluate(40, 80).refused) << name;
  }
}

TEST(RunTest, BothPathsTrainAlike) {
  RunSpec spec = Small("shaw");
  LabRun fused(spec, nullptr);
  spec.path = AttentionPath::kMaterialised;
  LabRun plain(spec, nullptr);
  // Rounding differs and grows from step to step; a wrong gradient would show
  // in the first digits.
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(fused.Step(), plain.Step(), 1e-4);
}

TEST(RunTest, ExtendsRopeAndRemembersIt) {
  LabRun run(Small("rope"), nullptr);
  for (int i = 0; i < 3; ++i) run.Step();
  const double plain = run.Evaluate(64, 128).loss;
  const std::string before = run.Save();
  run.Extend({{"scaling", "yarn"}, {"factor", "4"}}, 64);
  const double extended = run.Evaluate(64, 128).loss;
  EXPECT_NE(extended, plain);
  run.Step();
  const std::string after = run.Save();
  LabRun resumed(Small("rope"), nullptr);
  resumed.Load(after);
  EXPECT_EQ(resumed.Step(), run.Step());
  EXPECT_EQ(resumed.Evaluate(64, 128).loss, run.Evaluate(64, 128).loss);
  // Back to the earlier state.
  resumed.Load(before);
  EXPECT_EQ(resumed.Evaluate(64, 128).loss, plain);
  EXPECT_THROW(run.Extend({{"scaling", "magic"}}, 64), Error);
  EXPECT_THROW(LabRun(Small("shaw"), nullptr).Extend({{"clip", "3"}}, 16),
               Error);
}

TEST(RunTest, RefusesStatesThatAreNotItsOwn) {
  LabRun run(Small("none"), nullptr);
  const std::string saved = run.Save();
  EXPECT_THROW(LabRun(Small("alibi"), nullptr).Load(saved), Error);
  EXPECT_THROW(run.Load(""), Error);
  EXPECT_THROW(run.Load("not a state at all"), Error);
  // Damage within the state is detected by the file's checksum.
  for (const size_t cut :
       {size_t{9}, size_t{40}, saved.size() / 2, saved.size() - 1}) {
    EXPECT_THROW(run.Load(std::string_view(saved).substr(0, cut)), Error);
  }
  run.Load(saved);
  EXPECT_EQ(run.Save(), saved);
}

TEST(RunTest, RefusesSpecsThatCannotBeServed) {
  const auto refused = [](auto change) {
    RunSpec spec = Small("none");
    change(spec);
    EXPECT_THROW(LabRun(spec, nullptr), Error);
  };
  refused([](RunSpec& s) { s.encoding = "compass"; });
  refused([](RunSpec& s) { s.task = "juggling"; });
  refused([](RunSpec& s) { s.task = "text"; });  // without a corpus
  refused([](RunSpec& s) { s.model_dim = 33; });
  refused([](RunSpec& s) { s.train_length = 0; });
  refused([](RunSpec& s) { s.learning_rate = 0; });
  refused([](RunSpec& s) { s.options["colour"] = "red"; });
  refused([](RunSpec& s) {
    s.encoding = "index";
    s.options["mode"] = "concat";
  });
}

TEST(CostTest, MeasuresEverySpec) {
  std::vector<RunSpec> specs = {Small("none"), Small("none")};
  specs[0].train_length = specs[1].train_length = 256;
  specs[1].path = AttentionPath::kMaterialised;
  const std::vector<StepCost> costs = MeasureSteps(specs, nullptr, 3);
  ASSERT_EQ(costs.size(), 2u);
  for (const StepCost& cost : costs) {
    EXPECT_GT(cost.low, 0);
    EXPECT_LE(cost.low, cost.seconds);
    EXPECT_LE(cost.seconds, cost.high);
  }
  // Scores of 8 x 2 x 256 x 256 floats and their softmax are 8 MiB.
  EXPECT_GT(costs[1].peak_memory_bytes, 8 << 20);
  EXPECT_LT(costs[0].peak_memory_bytes, costs[1].peak_memory_bytes);
}

}  // namespace
}  // namespace locus::lab

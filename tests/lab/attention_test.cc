// Fused attention as a libtorch operation, against plain tensor operations in
// float64 with libtorch's own gradients.
#include "lab/train/attention.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "lab/train/materialised.h"
#include "lab/train/parameters.h"
#include "lab/train/position.h"
#include "locus/descriptor.h"

namespace locus::lab {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kLength = 37, kHeadDim = 8;

// The error of a float32 sum of kLength rounded products, relative to the
// largest entry. Scores reach about ten, and softmax turns an absolute error of
// a score into a relative error of a weight.
constexpr double kTolerance =
    16.0 * kLength * std::numeric_limits<float>::epsilon();

struct Result {
  torch::Tensor out = {};
  std::vector<torch::Tensor> grads = {};  // q, k, v, parameters
};

// The largest error relative to the largest entry, or to the random inputs'
// scale of 1: FIRE's b2 shifts all scores alike, so its gradient is zero up to
// rounding.
double Error(const torch::Tensor& got, const torch::Tensor& want) {
  const double size = std::max(want.abs().max().item<double>(), 1.0);
  return (got.to(torch::kDouble) - want).abs().max().item<double>() / size;
}

class AttentionTest : public testing::TestWithParam<std::string_view> {
 protected:
  PositionConfig Config(ModelKind kind) const {
    return {.encoding = std::string(GetParam()),
            .kind = kind,
            .layers = 1,
            .heads = kHeads,
            .head_dim = kHeadDim,
            .train_length = kLength};
  }
};

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const EncodingInfo& info : Encodings()) names.push_back(info.name);
  return names;
}

// Runs one implementation on the same numbers in the given type.
Result RunPath(bool fused, torch::ScalarType type, const EncodingValues& given,
               bool causal) {
  torch::manual_seed(7);
  // A view with the strides of a model: [B, L, 3, H, D], permuted.
  const torch::Tensor qkv = torch::randn({kBatch, kLength, 3, kHeads, kHeadDim})
                                .to(type)
                                .requires_grad_();
  const auto parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);
  EncodingValues values = {.form = given.form, .params = {}};
  for (const torch::Tensor& param : given.params) {
    values.params.push_back(param.detach().to(type).clone().requires_grad_());
  }
  const AttentionCall call = {.causal = causal, .threads = 1};
  MaterialisedAttention materialised;
  Result result;
  result.out = fused
                   ? FusedAttention(parts[0], parts[1], parts[2], values, call)
                   : materialised(parts[0], parts[1], parts[2], values, call);
  const torch::Tensor weights =
      torch::randn(result.out.sizes(), torch::kFloat).to(type);
  (result.out * weights).sum().backward();
  result.grads.push_back(qkv.grad());
  for (const torch::Tensor& param : values.params) {
    result.grads.push_back(param.grad());
  }
  return result;
}

void ExpectClose(const Result& got, const Result& want) {
  EXPECT_LE(Error(got.out, want.out), kTolerance);
  ASSERT_EQ(got.grads.size(), want.grads.size());
  for (size_t i = 0; i < want.grads.size(); ++i) {
    ASSERT_TRUE(want.grads[i].defined()) << "gradient " << i;
    ASSERT_TRUE(got.grads[i].defined()) << "gradient " << i;
    EXPECT_LE(Error(got.grads[i], want.grads[i]), kTolerance)
        << "gradient " << i;
  }
}

TEST_P(AttentionTest, FusedMatchesPlainTensorOperations) {
  for (const ModelKind kind : {ModelKind::kDecoder, ModelKind::kEncoder}) {
    const Position position(Config(kind));
    if (position.in_input()) return;  // see EmbedTest
    const ParameterSet parameters(position.Parameters(), /*seed=*/3);
    torch::NoGradGuard no_grad;
    const EncodingValues values = position.Values(parameters, 0, kLength);
    torch::AutoGradMode with_grad(true);
    const bool causal = kind == ModelKind::kDecoder;
    SCOPED_TRACE(causal ? "decoder" : "encoder");
    const Result exact = RunPath(false, torch::kDouble, values, causal);
    ExpectClose(RunPath(true, torch::kFloat, values, causal), exact);
    ExpectClose(RunPath(false, torch::kFloat, values, causal), exact);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionTest, testing::ValuesIn(Names()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(EmbedTest, GradientOfLearnedRowsIsTheRowsGradient) {
  const Position position({.encoding = "learned",
                           .heads = kHeads,
                           .head_dim = kHeadDim,
                           .train_length = kLength});
  ASSERT_TRUE(position.in_input());
  const ParameterSet parameters(position.Parameters(), /*seed=*/3);
  const EncodingValues values = position.Values(parameters, 0, kLength);
  const int64_t used = kLength - 5;
  const torch::Tensor rows = EmbedPositions(values, used);
  EXPECT_TRUE(rows.equal(values.params[0].narrow(0, 0, used)));
  const torch::Tensor weights = torch::randn(rows.sizes());
  (rows * weights).sum().backward();
  const torch::Tensor grad = values.params[0].grad();
  EXPECT_TRUE(grad.narrow(0, 0, used).equal(weights));
  EXPECT_EQ(grad.narrow(0, used, 5).abs().max().item<float>(), 0.0F);
}

}  // namespace
}  // namespace locus::lab

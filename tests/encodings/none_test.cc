#include "locus/encodings/none.h"

#include <numeric>

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(none);

namespace locus::testing {
namespace {

TEST(NoPositionTest, MatchesPaperFormula) {
  for (bool causal : {false, true}) {
    for (int64_t first : {int64_t{0}, kFar}) {
      const PaperCase c{.causal = causal, .first_position = first};
      EXPECT_LE(PaperError(NoPosition(), c,
                           [](int64_t, const auto& q, const auto& k, int64_t,
                              int64_t) { return ScaledDot(q, k); }),
                kPaperTolerance);
    }
  }
}

TEST(NoPositionTest, LowersToTheScaleAlone) {
  const Terms terms = NoPosition().Lower(Shape::SelfAttention(2, 16, 5)).terms;
  EXPECT_TRUE(TermNames(terms).empty());
  EXPECT_EQ(terms.scale.scale, 0.25);
}

// Without a mask, the output of a token does not depend on its position.
TEST(NoPositionTest, IsPermutationEquivariant) {
  constexpr int64_t kLength = 19, kDim = 8;
  const std::vector<int64_t> shape = {1, 1, kLength, kDim};
  std::vector<int64_t> order(kLength);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
  const auto shuffled = [&](const Tensor& x) {
    std::vector<double> out;
    for (int64_t i : order) {
      for (int64_t d = 0; d < kDim; ++d) out.push_back(x.At(0, 0, i, d));
    }
    return Tensor::From(shape, std::move(out));
  };
  const Tensor q = RandomTensor(shape, 1), k = RandomTensor(shape, 2);
  const Tensor v = RandomTensor(shape, 3);
  const auto plain = reference::Attention(q, k, v, NoPosition());
  const auto moved =
      reference::Attention(shuffled(q), shuffled(k), shuffled(v), NoPosition());
  EXPECT_LE(RelativeError(moved.out, shuffled(plain.out)), kPaperTolerance);

  // A causal mask breaks it: the check above can fail.
  const AttentionOptions causal{.causal = true};
  const auto masked = reference::Attention(q, k, v, NoPosition(), causal);
  const auto masked_moved = reference::Attention(
      shuffled(q), shuffled(k), shuffled(v), NoPosition(), causal);
  EXPECT_GT(RelativeError(masked_moved.out, shuffled(masked.out)), 0.1);
}

TEST(NoPositionTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { NoPosition().Embed(std::vector<int64_t>{0}); }),
            "none does not act on the input: it has no rows to add to x");
  EXPECT_EQ(ErrorOf([] { NoPosition().WithParams(std::vector<Tensor>(2)); }),
            "none has no trainable parameters, got 2");
}

}  // namespace
}  // namespace locus::testing

// Symmetries: attention without positions is independent of order, and relative
// encodings are independent of where a sequence starts.
#include "reference/encoding_calls.h"

namespace locus::testing {
namespace {

TEST(PropertiesTest, WithoutPositionAttentionIsPermutationEquivariant) {
  constexpr int64_t kTokens = 23;
  const Tokens tokens = Tokens::Random(kTokens, 5);
  std::vector<int64_t> order(kTokens);
  for (size_t n = 0; n < order.size(); ++n) order[n] = int64_t(n);
  std::mt19937_64 engine(6);
  const auto permuted = [&](const Tensor& x) {
    Tensor out = Tensor::Zeros(DType::kF64, x.shape());
    double* data = out.MutableData<double>();
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t i : order) {
        for (int64_t d = 0; d < x.size(3); ++d) *data++ = x.At(0, h, i, d);
      }
    }
    return out;
  };
  const Tensor plain =
      reference::Attention(tokens.q, tokens.k, tokens.v, NoPosition()).out;
  for (int round = 0; round < 10; ++round) {
    std::ranges::shuffle(order, engine);
    const Tensor mixed =
        reference::Attention(permuted(tokens.q), permuted(tokens.k),
                             permuted(tokens.v), NoPosition())
            .out;
    // Sums of 23 terms in another order.
    EXPECT_LE(RelativeError(mixed, permuted(plain)), 23 * 0x1p-52);
    // The test can fail: with positions, order matters.
    const Alibi alibi(kHeads);
    EXPECT_GT(
        RelativeError(
            reference::Attention(permuted(tokens.q), permuted(tokens.k),
                                 permuted(tokens.v), alibi)
                .out,
            permuted(
                reference::Attention(tokens.q, tokens.k, tokens.v, alibi).out)),
        1e-3);
  }
}

// Attention over tokens at the given positions.
Tensor At(const Encoding& encoding, const Tokens& tokens,
          const std::vector<int64_t>& positions, bool causal) {
  return reference::Attention(tokens.q, tokens.k, tokens.v, encoding,
                              {.causal = causal,
                               .q_positions = positions,
                               .k_positions = positions})
      .out;
}

class ShiftTest : public ::testing::TestWithParam<std::string> {};

// The position to which `shift` moves position p of a 12-token sequence. On a
// plane a shift moves rows: in raster order, by a multiple of the width.
int64_t Shifted(const EncodingInfo& info, int64_t p, int64_t shift) {
  if (info.name == "rope-2d" || info.name == "rope-mixed") {
    return p + shift * kWidth;
  }
  if (info.name == "mrope") {
    return p + PackPosition(shift, shift / 2, shift / 3) - kPackedFrom;
  }
  return p + shift;
}

// Swin's window has an edge, so shifts stay within the window. FIRE divides by
// psi(max(m, L)) and so is relative only below its threshold L, by design: here
// L is above every position.
TEST_P(ShiftTest, RelativeEncodingsDoNotSeeTheStart) {
  const EncodingInfo& info = FindEncoding(GetParam());
  auto encoding = MakeExample(info);
  if (info.name == "fire") {
    encoding = info.example({.heads = kHeads,
                             .head_dim = kDim,
                             .length = kLength,
                             .options = {{"threshold", "2e6"}}});
  }
  // 12 tokens: three rows of the 4 x 4 window.
  const Tokens tokens = Tokens::Random(12, 7);
  const std::vector<int64_t> positions = PositionsOf(info, 0, 12);
  const std::vector<int64_t> shifts =
      info.name == "swin" ? std::vector<int64_t>{4}
                          : std::vector<int64_t>{1, 3, 1000, 1'000'000};
  const bool rotates = encoding->Lower(Shape::SelfAttention(kHeads, kDim, 12))
                           .terms.rotate.has_value();
  for (bool causal : {false, true}) {
    const Tensor plain = At(*encoding, tokens, positions, causal);
    for (int64_t shift : shifts) {
      std::vector<int64_t> moved;
      for (int64_t p : positions) moved.push_back(Shifted(info, p, shift));
      // Tables and biases use exact integer offsets: the same bits. Angles have
      // the rounding error of position * theta, at most |position| * eps, and
      // scores are sums of kDim such products of order 1.
      const double tolerance =
          rotates ? 0x1p-52 * kDim * 8.0 * static_cast<double>(shift + 12)
                  : 0.0;
      EXPECT_LE(RelativeError(At(*encoding, tokens, moved, causal), plain),
                tolerance)
          << "shift " << shift;
    }
  }
}

// The same at the other end: far below zero, if positions may be negative.
TEST_P(ShiftTest, NegativePositionsAreRelativeToo) {
  const EncodingInfo& info = FindEncoding(GetParam());
  // These decode coordinates from the position, or index a window from 0.
  if (info.name == "swin" || info.name == "rope-2d" ||
      info.name == "rope-mixed") {
    const auto encoding = MakeExample(info);
    EXPECT_NE(ErrorOf([&] {
                At(*encoding, Tokens::Random(2, 8), {-1, 0}, false);
              }),
              "");
    return;
  }
  const auto encoding = MakeExample(info);
  const Tokens tokens = Tokens::Random(12, 8);
  std::vector<int64_t> counted, moved;
  for (int64_t i = 0; i < 12; ++i) {
    counted.push_back(i);
    moved.push_back(i - 1'000'000);
  }
  const Tensor plain = At(*encoding, tokens, counted, /*causal=*/true);
  EXPECT_LE(RelativeError(At(*encoding, tokens, moved, /*causal=*/true), plain),
            0x1p-52 * kDim * 8.0 * 1e6);
}

// On a plane, a block of 3 x 2 tokens may shift by rows and by columns.
TEST(PropertiesTest, PlanesShiftInBothDirections) {
  const Tokens tokens = Tokens::Random(6, 11);
  const auto block = [](int64_t y, int64_t x) {
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 6; ++i) {
      positions.push_back((y + i / 2) * kWidth + x + i % 2);
    }
    return positions;
  };
  for (const char* name : {"swin", "rope-2d", "rope-mixed"}) {
    const auto encoding = MakeExample(FindEncoding(name));
    const Tensor plain = At(*encoding, tokens, block(0, 0), false);
    for (int64_t y : {0, 1}) {
      for (int64_t x : {0, 1, 2}) {
        EXPECT_LE(
            RelativeError(At(*encoding, tokens, block(y, x), false), plain),
            0x1p-52 * kDim * 8.0)
            << name << " by " << y << ", " << x;
      }
    }
  }
}

// psi(max(m, L)) depends on the query above L: the interpolation of the paper.
TEST(PropertiesTest, FireSeesTheQueryAboveItsThreshold) {
  const auto fire =
      FindEncoding("fire").example({.heads = kHeads,
                                    .head_dim = kDim,
                                    .length = kLength,
                                    .options = {{"threshold", "100"}}});
  const Tokens tokens = Tokens::Random(12, 9);
  const std::vector<int64_t> start = PositionsOf(FindEncoding("fire"), 0, 12);
  std::vector<int64_t> below, above;
  for (int64_t p : start) {
    below.push_back(p + 80);
    above.push_back(p + 10'000);
  }
  const Tensor plain = At(*fire, tokens, start, /*causal=*/true);
  EXPECT_EQ(RelativeError(At(*fire, tokens, below, true), plain), 0.0);
  EXPECT_GT(RelativeError(At(*fire, tokens, above, true), plain), 1e-3);
}

// An absolute encoding does depend on the start: the tests above can fail.
TEST(PropertiesTest, TupeIsAbsolute) {
  const auto tupe = MakeExample(FindEncoding("tupe"));
  const Tokens tokens = Tokens::Random(12, 10);
  const EncodingInfo& info = FindEncoding("tupe");
  EXPECT_GT(RelativeError(At(*tupe, tokens, PositionsOf(info, 2, 14), false),
                          At(*tupe, tokens, PositionsOf(info, 0, 12), false)),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(EveryRelativeEncoding, ShiftTest,
                         ::testing::ValuesIn(ClassNames(Reference::kRelative)),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace locus::testing

// One contract for positions: for every encoding, packed, padded and decoded
// calls equal a single run.
#include <numeric>

#include "reference/encoding_calls.h"

namespace locus::testing {
namespace {

// The same sums in the same order, but with tables of other sizes and offsets:
// a few roundings.
constexpr double kTolerance = 16 * 0x1p-52;

class OneContractTest : public ::testing::TestWithParam<std::string> {
 protected:
  const EncodingInfo& info() const { return FindEncoding(GetParam()); }
};

TEST_P(OneContractTest, PackedEqualsSeparate) {
  const auto encoding = MakeExample(info());
  const std::vector<int64_t> lengths = {5, 1, 7};
  const Tokens tokens = Tokens::Random(13, 1);
  for (bool causal : {false, true}) {
    AttentionOptions options{.causal = causal};
    const PackedTokens packed = Pack(lengths);
    std::vector<int64_t> positions;
    for (int64_t p : packed.positions) {
      positions.push_back(PositionOf(info(), p));
    }
    options.q_positions = options.k_positions = positions;
    options.q_segments = options.k_segments = packed.segments;
    const reference::Forward all = Attend(*encoding, tokens, options);
    int64_t begin = 0;
    for (int64_t length : lengths) {
      const int64_t end = begin + length;
      const std::vector<int64_t> own = PositionsOf(info(), 0, length);
      const reference::Forward alone =
          Attend(*encoding,
                 {Slice(tokens.q, begin, end), Slice(tokens.k, begin, end),
                  Slice(tokens.v, begin, end)},
                 {.causal = causal, .q_positions = own, .k_positions = own});
      EXPECT_LE(RelativeError(Slice(all.out, begin, end), alone.out),
                kTolerance);
      begin = end;
    }
  }
}

TEST_P(OneContractTest, PaddedEqualsUnpadded) {
  const auto encoding = MakeExample(info());
  const Tokens tokens = Tokens::Random(12, 2);
  const std::vector<int64_t> positions = PositionsOf(info(), 0, 12);
  const std::vector<int64_t> real = {9};
  // Padding on the right: only nine keys exist.
  const reference::Forward padded = Attend(*encoding, tokens,
                                           {.q_positions = positions,
                                            .k_positions = positions,
                                            .key_lengths = real});
  const std::span<const int64_t> nine(positions.data(), 9);
  const reference::Forward plain = Attend(
      *encoding,
      {Slice(tokens.q, 0, 9), Slice(tokens.k, 0, 9), Slice(tokens.v, 0, 9)},
      {.q_positions = nine, .k_positions = nine});
  EXPECT_LE(RelativeError(Slice(padded.out, 0, 9), plain.out), kTolerance);

  // Padding on the left, as a separate segment at position 0.
  std::vector<int64_t> left(3, positions[0]), segments(3, 1);
  left.insert(left.end(), nine.begin(), nine.end());
  segments.insert(segments.end(), 9, 0);
  const auto shifted = [](const Tensor& x) {
    Tensor out = Tensor::Zeros(DType::kF64, {1, x.size(1), 12, x.size(3)});
    double* data = out.MutableData<double>();
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t i = 0; i < 12; ++i) {
        for (int64_t d = 0; d < x.size(3); ++d) {
          *data++ = i < 3 ? 100.0 : x.At(0, h, i - 3, d);
        }
      }
    }
    return out;
  };
  const reference::Forward right = Attend(
      *encoding, {shifted(tokens.q), shifted(tokens.k), shifted(tokens.v)},
      {.q_positions = left,
       .k_positions = left,
       .q_segments = segments,
       .k_segments = segments});
  EXPECT_LE(RelativeError(Slice(right.out, 3, 12), plain.out), kTolerance);
}

TEST_P(OneContractTest, DecodingEqualsTheCausalRun) {
  const auto encoding = MakeExample(info());
  const Tokens tokens = Tokens::Random(kLength, 3);
  const std::vector<int64_t> positions = PositionsOf(info(), 0, kLength);
  const std::span<const int64_t> all(positions);
  const reference::Forward full =
      Attend(*encoding, tokens,
             {.causal = true, .q_positions = all, .k_positions = all});
  for (int64_t i = 0; i < kLength; ++i) {
    const reference::Forward step =
        Attend(*encoding,
               {Slice(tokens.q, i, i + 1), Slice(tokens.k, 0, i + 1),
                Slice(tokens.v, 0, i + 1)},
               {.causal = true,
                .q_positions = all.subspan(static_cast<size_t>(i), 1),
                .k_positions = all.first(static_cast<size_t>(i + 1))});
    EXPECT_LE(RelativeError(step.out, Slice(full.out, i, i + 1)), kTolerance)
        << "token " << i;
    for (int64_t h = 0; h < kHeads; ++h) {
      EXPECT_NEAR(step.lse.At(0, h, 0), full.lse.At(0, h, i), 16 * 0x1p-52 * 8);
    }
  }
}

// Tokens may come in any order: results follow the positions.
TEST_P(OneContractTest, ShuffledTokensGiveShuffledResults) {
  const auto encoding = MakeExample(info());
  const Tokens tokens = Tokens::Random(kLength, 4);
  std::vector<int64_t> order(kLength);
  for (size_t n = 0; n < order.size(); ++n) order[n] = int64_t(n * 7 % 16);
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
  for (bool causal : {false, true}) {
    // Causal attention by packed positions requires increasing ones.
    std::vector<int64_t> positions = PositionsOf(info(), 0, kLength), shuffled;
    if (causal) std::iota(positions.begin(), positions.end(), 0);
    for (int64_t i : order) shuffled.push_back(positions[size_t(i)]);
    const reference::Forward plain = Attend(
        *encoding, tokens,
        {.causal = causal, .q_positions = positions, .k_positions = positions});
    const reference::Forward mixed = Attend(
        *encoding, {permuted(tokens.q), permuted(tokens.k), permuted(tokens.v)},
        {.causal = causal, .q_positions = shuffled, .k_positions = shuffled});
    // Sums of sixteen terms in another order.
    EXPECT_LE(RelativeError(mixed.out, permuted(plain.out)), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryEncoding, OneContractTest,
                         ::testing::ValuesIn(ClassNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace locus::testing

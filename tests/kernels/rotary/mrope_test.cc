// M-RoPE in all drivers: plain positions are text, packed ones are images and
// videos, and masks treat both alike.
#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

constexpr MRopeSections kDealings[] = {MRopeSections::kChunked,
                                       MRopeSections::kInterleaved};

MRope Multimodal(MRopeSections dealing = MRopeSections::kChunked) {
  return {kHeadDim, PairLayout::kHalves, {2, 3, 3}, dealing, 1e4};
}

Rope Ordinary() { return {kHeadDim, PairLayout::kHalves, {.base = 1e4}}; }

// (t, h, w) of tokens as numbered by Qwen2-VL: text, an image of 2 x 3, text,
// then a video of 5 frames of 1 x 2 whose time exceeds that of the text after
// it.
std::vector<std::array<int64_t, 3>> Tokens() {
  std::vector<std::array<int64_t, 3>> tokens;
  int64_t next = 0;
  const auto text = [&](int64_t count) {
    for (; count > 0; --count, ++next) tokens.push_back({next, next, next});
  };
  const auto vision = [&](int64_t frames, int64_t rows, int64_t columns) {
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t h = 0; h < rows; ++h) {
        for (int64_t w = 0; w < columns; ++w) {
          tokens.push_back({next + t, next + h, next + w});
        }
      }
    }
    next += std::max(rows, columns);
  };
  text(3);
  vision(1, 2, 3);
  text(2);
  vision(5, 1, 2);
  text(2);
  return tokens;
}

std::vector<int64_t> Packed(int64_t begin, int64_t end) {
  const auto tokens = Tokens();
  std::vector<int64_t> packed;
  for (int64_t i = begin; i < end; ++i) {
    const auto& [t, h, w] = tokens[static_cast<size_t>(i)];
    packed.push_back(PackPosition(t, h, w));
  }
  return packed;
}
constexpr int64_t kImageTokens = 3 + 6 + 2;  // without the video
constexpr int64_t kTokens = kImageTokens + 10 + 2;

// Attention in float64 by the definition of the paper: each pair of q and k
// rotates by its own coordinate, and key j is visible to query i if i - left <=
// j <= i.
Tensor ByHand(const Sequence& x, const std::vector<int32_t>& axis,
              int64_t left) {
  const auto tokens = Tokens();
  const int64_t length = x.q.size(2), pairs = kHeadDim / 2;
  const auto rotated = [&](const Tensor& t, int64_t h, int64_t i) {
    std::vector<double> row(kHeadDim);
    for (int64_t p = 0; p < pairs; ++p) {
      const auto at = static_cast<size_t>(p);
      const int64_t c =
          tokens[static_cast<size_t>(i)][static_cast<size_t>(axis[at])];
      const double angle =
          double(c) * std::pow(1e4, -2.0 * double(p) / double(kHeadDim));
      const double a = t.At(0, h, i, p), b = t.At(0, h, i, p + pairs);
      row[at] = a * std::cos(angle) - b * std::sin(angle);
      row[at + size_t(pairs)] = a * std::sin(angle) + b * std::cos(angle);
    }
    return row;
  };
  Tensor out = Tensor::Zeros(DType::kF64, {1, kQueryHeads, length, kHeadDim});
  double* to = out.MutableData<double>();
  for (int64_t h = 0; h < kQueryHeads; ++h) {
    const int64_t kv = h / (kQueryHeads / kKeyHeads);
    for (int64_t i = 0; i < length; ++i, to += kHeadDim) {
      const std::vector<double> q = rotated(x.q, h, i);
      double total = 0.0;
      for (int64_t j = std::max<int64_t>(i - left, 0); j <= i; ++j) {
        const std::vector<double> k = rotated(x.k, kv, j);
        double dot = 0.0;
        for (size_t d = 0; d < q.size(); ++d) dot += q[d] * k[d];
        const double p = std::exp(dot / std::sqrt(double(kHeadDim)));
        total += p;
        for (int64_t d = 0; d < kHeadDim; ++d) to[d] += p * x.v.At(0, kv, j, d);
      }
      for (int64_t d = 0; d < kHeadDim; ++d) to[d] /= total;
    }
  }
  return out;
}

// The coordinate that rotates each pair, written out by hand.
std::vector<int32_t> AxesOf(MRopeSections dealing) {
  if (dealing == MRopeSections::kChunked) return {0, 0, 1, 1, 1, 2, 2, 2};
  return {0, 1, 2, 0, 1, 2, 0, 1};
}
MRope Dealt(MRopeSections dealing) {
  if (dealing == MRopeSections::kChunked) return Multimodal(dealing);
  return {kHeadDim, PairLayout::kHalves, {3, 3, 2}, dealing, 1e4};
}

TEST(MRopeEngineTest, DefaultPositionsAreText) {
  const Sequence x = RandomSequence(81, /*batch=*/2);
  const std::vector<int64_t> lengths = {81, 40};
  std::vector<int64_t> left;  // padded on the left, by negative positions
  for (int64_t i = 0; i < 81; ++i) left.push_back(i - 30);
  const AttentionOptions calls[] = {
      {},
      {.causal = true},
      {.causal = true, .window = Window{.left = 5, .right = 0}},
      {.window = Window{.left = 9, .right = 4}},
      {.causal = true, .key_lengths = lengths},
      {.causal = true, .q_positions = left, .k_positions = left}};
  for (MRopeSections dealing : kDealings) {
    for (AttentionOptions options : calls) {
      options.return_lse = true;
      for (int64_t queries : {1, 7, 81}) {
        if (!options.q_positions.empty() && queries < 81) continue;
        const Tensor q = Part(x.q, 81 - queries, 81);
        const auto rope = Attention(q, x.k, x.v, Ordinary(), options);
        const auto text = Attention(q, x.k, x.v, Multimodal(dealing), options);
        EXPECT_LE(RelativeError(text.out, rope.out), 2 * kTolerance);
        const Tensor d_out = RandomTensor(q.shape(), 4).To(DType::kF32);
        const auto a =
            AttentionBackward(d_out, q, x.k, x.v, rope, Ordinary(), options);
        const auto b = AttentionBackward(d_out, q, x.k, x.v, text,
                                         Multimodal(dealing), options);
        EXPECT_LE(RelativeError(b.d_q, a.d_q), 16 * kTolerance);
        EXPECT_LE(RelativeError(b.d_k, a.d_k), 16 * kTolerance);
        EXPECT_LE(RelativeError(b.d_v, a.d_v), 16 * kTolerance);
      }
    }
    const Rotation text = *Multimodal(dealing)
                               .Lower(Shape::SelfAttention(1, kHeadDim, 1))
                               .terms.rotate;
    const Rotation rope = Ordinary().RotationFor(1);
    EXPECT_EQ(Rotate(x.q, text).ToVector(), Rotate(x.q, rope).ToVector());
    EXPECT_EQ(Rotate(x.q, text, left, /*inverse=*/true).ToVector(),
              Rotate(x.q, rope, left, /*inverse=*/true).ToVector());
    EXPECT_EQ(RotaryTable::UpTo(text, 20).cos().ToVector(),
              RotaryTable::UpTo(rope, 20).cos().ToVector());
  }
}

TEST(MRopeEngineTest, DecodesTextTokenByToken) {
  const Sequence x = RandomSequence(40);
  const AttentionOptions calls[] = {
      {.causal = true},
      {.causal = true, .window = Window{.left = 3, .right = 0}}};
  for (const AttentionOptions& options : calls) {
    const Tensor whole =
        reference::Attention(x.q, x.k, x.v, Ordinary(), options).out;
    KvCache cache(Config());
    for (int64_t i = 0; i < 40; ++i) {
      cache.Append(Part(x.k, i, i + 1), Part(x.v, i, i + 1), Multimodal());
      const Tensor row = cache
                             .Decode(Part(x.q, i, i + 1), Multimodal(),
                                     DecodeOptions::From(options))
                             .out;
      const Tensor wanted = Tensor::Borrow(
          DType::kF64, {1, kQueryHeads, 1, kHeadDim}, whole.strides(),
          whole.Data<double>() + i * whole.strides()[2]);
      ASSERT_LE(RelativeError(row, wanted), 2 * kTolerance) << i;
    }
    EXPECT_EQ(cache.positions().back(), 39);
  }
}

// Images keep their order: causal attention may use packed positions.
TEST(MRopeEngineTest, CausalImagesEqualThePaper) {
  const Sequence whole = RandomSequence(kTokens);
  const auto cut = [](const Tensor& t) { return Part(t, 0, kImageTokens); };
  const Sequence x{cut(whole.q), cut(whole.k), cut(whole.v)};
  const std::vector<int64_t> positions = Packed(0, kImageTokens);
  for (MRopeSections dealing : kDealings) {
    const Tensor wanted = ByHand(x, AxesOf(dealing), kTokens);
    for (bool by_index : {false, true}) {
      const AttentionOptions options{.causal = true,
                                     .by_index = by_index,
                                     .q_positions = positions,
                                     .k_positions = positions};
      EXPECT_LE(
          RelativeError(Attention(x.q, x.k, x.v, Dealt(dealing), options).out,
                        wanted),
          2 * kTolerance);
    }
  }
}

// After a video, the text is at earlier positions than its last frames, so only
// indices have the right order.
TEST(MRopeEngineTest, VideosGoByIndex) {
  const Sequence x = RandomSequence(kTokens);
  const std::vector<int64_t> positions = Packed(0, kTokens);
  for (MRopeSections dealing : kDealings) {
    const MRope rope = Dealt(dealing);
    for (int64_t left : {kTokens, int64_t{4}}) {
      AttentionOptions options{.causal = true,
                               .by_index = true,
                               .q_positions = positions,
                               .k_positions = positions,
                               .return_lse = true};
      if (left < kTokens) options.window = Window{.left = left, .right = 9};
      const Tensor wanted = ByHand(x, AxesOf(dealing), left);
      EXPECT_LE(
          RelativeError(reference::Attention(x.q, x.k, x.v, rope, options).out,
                        wanted),
          1e-12);
      const AttentionResult fused = Attention(x.q, x.k, x.v, rope, options);
      EXPECT_LE(RelativeError(fused.out, wanted), 2 * kTolerance);
      const Tensor d_out = RandomTensor(x.q.shape(), 4).To(DType::kF32);
      const EncodingGrads a =
          AttentionBackward(d_out, x.q, x.k, x.v, fused, rope, options);
      const auto b =
          reference::AttentionBackward(d_out, x.q, x.k, x.v, rope, options);
      EXPECT_LE(RelativeError(a.d_q, b.d_q), 16 * kTolerance);
      EXPECT_LE(RelativeError(a.d_k, b.d_k), 16 * kTolerance);
      EXPECT_LE(RelativeError(a.d_v, b.d_v), 16 * kTolerance);
    }
  }
}

// A cache is given the positions of images and continues by itself: text before
// them by default, text after them above every coordinate.
TEST(MRopeEngineTest, DecodesImagesAndVideos) {
  const Sequence x = RandomSequence(kTokens + 3);
  std::vector<int64_t> positions = Packed(0, kTokens);
  const MRope rope = Multimodal();
  for (int64_t left : {kTokens + 3, int64_t{4}}) {
    KvCache cache(Config());
    const auto append = [&](int64_t begin, int64_t end, bool given) {
      AppendOptions options;
      if (given) options.positions = Part(positions, begin, end);
      cache.Append(Part(x.k, begin, end), Part(x.v, begin, end), rope, options);
    };
    append(0, 3, /*given=*/false);
    append(3, kTokens, /*given=*/true);
    append(kTokens, kTokens + 2, /*given=*/false);
    append(kTokens + 2, kTokens + 3, /*given=*/false);
    // The video has times 8 .. 12, the text after it 10 and 11.
    std::vector<int64_t> all = positions;
    for (int64_t p : {13, 14, 15}) all.push_back(PackPosition(p, p, p));
    EXPECT_EQ(cache.positions()[1], 1);
    EXPECT_TRUE(std::ranges::equal(cache.positions().subspan(3),
                                   std::span(all).subspan(3)));
    AttentionOptions options{.causal = true, .by_index = true};
    if (left < kTokens) options.window = Window{.left = left, .right = 0};
    options.q_positions = options.k_positions = all;
    const Tensor wanted =
        reference::Attention(x.q, x.k, x.v, rope, options).out;
    const DecodeOptions cached{.window = options.window};  // the rest it knows
    EXPECT_LE(RelativeError(cache.Decode(x.q, rope, cached).out, wanted),
              2 * kTolerance);
    const Tensor last = Tensor::Borrow(
        DType::kF64, {1, kQueryHeads, 2, kHeadDim}, wanted.strides(),
        wanted.Data<double>() + (kTokens + 1) * wanted.strides()[2]);
    const Tensor q = Part(x.q, kTokens + 1, kTokens + 3);
    EXPECT_LE(RelativeError(cache.Decode(q, rope, cached).out, last),
              2 * kTolerance);
    // Rotated to another table and back.
    const MRope other(kHeadDim, PairLayout::kHalves, {2, 3, 3});
    cache.Rerotate(other);
    cache.Rerotate(rope);
    EXPECT_LE(RelativeError(cache.Decode(q, rope, cached).out, last),
              8 * kTolerance);
    // Truncated within the image; text continues above what remains of it.
    cache.Truncate(7);
    append(7, 8, /*given=*/false);
    EXPECT_EQ(cache.positions().back(), PackPosition(6, 6, 6));
  }
}

TEST(MRopeEngineTest, RefusesMasksThatPackedPositionsCannotTell) {
  const Sequence x = RandomSequence(kTokens);
  const std::vector<int64_t> packed = Packed(0, kTokens);
  const auto refusal = [&](AttentionOptions options) {
    return ErrorOf([&] { Attention(x.q, x.k, x.v, Multimodal(), options); });
  };
  AttentionOptions options{.q_positions = packed, .k_positions = packed};
  EXPECT_EQ(refusal(options), "") << "nothing is compared";
  options.causal = true;
  EXPECT_EQ(refusal(options),
            "causal attention cannot go by packed positions such as "
            "1152934698754768905 that do not rise from token to token: let it "
            "go by_index");
  options.causal = false;
  options.window = Window{.left = 4, .right = 0};
  EXPECT_EQ(refusal(options),
            "a window cannot go by packed positions such as "
            "1152934698754768905, which have no distance from one another: "
            "let it go by_index");
  // Default query positions, and packed keys.
  options = {.causal = true, .k_positions = packed};
  EXPECT_EQ(refusal(options),
            "causal attention cannot compare position 0 of a text token with "
            "the packed position 1152934698754768905: pack those of text too, "
            "as PackPosition(p, p, p), or let it go by_index");
  // Three coordinates without the flag of PackPosition.
  std::vector<int64_t> unmarked = packed;
  for (int64_t& p : unmarked) p -= kPackedFrom;
  options = {.q_positions = unmarked, .k_positions = unmarked};
  EXPECT_EQ(refusal(options),
            "position 13194147921929 is neither one of text, below 2^40, nor "
            "made by PackPosition");
  EXPECT_EQ(ErrorOf([&] {
              Rotate(x.q,
                     *Multimodal()
                          .Lower(Shape::SelfAttention(1, kHeadDim, 1))
                          .terms.rotate,
                     unmarked);
            }),
            "position 13194147921929 is neither one of text, below 2^40, nor "
            "made by PackPosition");
}

// A bias or a table uses positions, which must then be increasing as well.
TEST(MRopeEngineTest, ByIndexRefusesTablesOverPositionsThatFall) {
  const Sequence x = RandomSequence(4);
  const std::vector<int64_t> falling = {0, 1, 3, 2};
  const AttentionOptions options{.causal = true,
                                 .by_index = true,
                                 .q_positions = falling,
                                 .k_positions = falling};
  EXPECT_EQ(
      ErrorOf([&] { Attention(x.q, x.k, x.v, Alibi(kQueryHeads), options); }),
      "a mask by_index beside a bias or a table needs positions that "
      "rise");
}

}  // namespace
}  // namespace locus::testing

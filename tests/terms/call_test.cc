// Sizes, positions and masks of a call.
#include "terms/call.h"

#include <fmt/format.h>

#include <optional>

#include "locus/attention.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// Options with storage for their spans, drawn at random.
struct RandomCall {
  CallSizes sizes;
  AttentionOptions options;
  std::vector<int64_t> q_pos, k_pos, q_seg, k_seg, key_lengths;

  explicit RandomCall(uint64_t seed) {
    std::mt19937_64 engine(seed);
    const auto draw = [&](int64_t lo, int64_t hi) {
      return std::uniform_int_distribution<int64_t>(lo, hi)(engine);
    };
    const auto fill = [&](std::vector<int64_t>& out, int64_t length, int64_t lo,
                          int64_t hi) {
      const int64_t copies = draw(0, 1) != 0 ? sizes.batch : 1;
      for (int64_t n = 0; n < copies * length; ++n) out.push_back(draw(lo, hi));
    };
    sizes = {.batch = draw(1, 3),
             .q_heads = 4,
             .kv_heads = 2,
             .q_len = draw(0, 6),
             .k_len = draw(0, 6),
             .head_dim = 8,
             .value_dim = 8};
    const int64_t base = draw(0, 2) * 1'000'000'000'000 - 1'000'000'000'000;
    if (draw(0, 1) != 0) fill(q_pos, sizes.q_len, base - 5, base + 5);
    if (draw(0, 1) != 0) fill(k_pos, sizes.k_len, base - 5, base + 5);
    if (draw(0, 2) == 0) {
      fill(q_seg, sizes.q_len, 0, 2);
      fill(k_seg, sizes.k_len, 0, 2);
    }
    if (draw(0, 2) == 0) {
      for (int64_t b = 0; b < sizes.batch; ++b) {
        key_lengths.push_back(draw(0, sizes.k_len));
      }
    }
    options.causal = draw(0, 1) != 0;
    options.by_index = draw(0, 3) == 0;
    if (draw(0, 1) != 0) {
      options.window = Window{.left = draw(0, 4), .right = draw(0, 4)};
    }
    options.q_positions = q_pos;
    options.k_positions = k_pos;
    options.q_segments = q_seg;
    options.k_segments = k_seg;
    options.key_lengths = key_lengths;
  }

  // A token's entry of a span, by the definition in attention.h.
  static int64_t Entry(const std::vector<int64_t>& span, int64_t b, int64_t at,
                       int64_t length) {
    const bool shared = static_cast<int64_t>(span.size()) == length;
    return span[static_cast<size_t>(shared ? at : b * length + at)];
  }
  int64_t QPos(int64_t b, int64_t i) const {
    if (!q_pos.empty()) return Entry(q_pos, b, i, sizes.q_len);
    return QIndex(b, i);
  }
  int64_t QIndex(int64_t b, int64_t i) const {
    const int64_t keys =
        key_lengths.empty() ? sizes.k_len : key_lengths[static_cast<size_t>(b)];
    return i + std::max<int64_t>(keys - sizes.q_len, 0);
  }
  int64_t KPos(int64_t b, int64_t j) const {
    return k_pos.empty() ? j : Entry(k_pos, b, j, sizes.k_len);
  }
  bool Visible(int64_t b, int64_t i, int64_t j) const {
    bool visible = true;
    if (!key_lengths.empty()) {
      visible &= j < key_lengths[static_cast<size_t>(b)];
    }
    if (!q_seg.empty()) {
      visible &=
          Entry(q_seg, b, i, sizes.q_len) == Entry(k_seg, b, j, sizes.k_len);
    }
    const int64_t m = options.by_index ? QIndex(b, i) : QPos(b, i);
    const int64_t n = options.by_index ? j : KPos(b, j);
    if (options.causal) visible &= n <= m;
    if (options.window) {
      visible &= m - n <= options.window->left;
      visible &= n - m <= options.window->right;
    }
    return visible;
  }
};

TEST(CallTest, MaskEqualsThePredicate) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomCall c(seed);
    const CallMask mask(c.sizes, c.options);
    for (int64_t b = 0; b < c.sizes.batch; ++b) {
      for (int64_t i = 0; i < c.sizes.q_len; ++i) {
        ASSERT_EQ(mask.QPos(b, i), c.QPos(b, i)) << seed;
        for (int64_t j = 0; j < c.sizes.k_len; ++j) {
          ASSERT_EQ(mask.KPos(b, j), c.KPos(b, j)) << seed;
          ASSERT_EQ(mask.Visible(b, 0, i, j), c.Visible(b, i, j)) << seed;
        }
      }
    }
  }
}

// The extremes bound every visible pair: some token has each extreme position,
// and offsets are within what tokens, causality and window allow.
TEST(CallTest, ShapeBoundsEveryVisiblePair) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomCall c(seed);
    const Shape s = CallMask(c.sizes, c.options).ShapeOf(c.sizes, c.options);
    EXPECT_EQ(s.q_heads, 4);
    EXPECT_EQ(s.kv_heads, 2);
    EXPECT_EQ(s.head_dim, 8);
    ASSERT_LE(s.min_offset, s.max_offset) << seed;
    std::optional<int64_t> q_lo, q_hi, k_lo, k_hi;
    for (int64_t b = 0; b < c.sizes.batch; ++b) {
      for (int64_t i = 0; i < c.sizes.q_len; ++i) {
        const int64_t m = c.QPos(b, i);
        q_lo = std::min(q_lo.value_or(m), m);
        q_hi = std::max(q_hi.value_or(m), m);
        for (int64_t j = 0; j < c.sizes.k_len; ++j) {
          if (!c.Visible(b, i, j)) continue;
          const int64_t n = c.KPos(b, j);
          ASSERT_LE(s.min_k_pos, n) << seed;
          ASSERT_GE(s.max_k_pos, n) << seed;
          ASSERT_LE(s.min_offset, m - n) << seed;
          ASSERT_GE(s.max_offset, m - n) << seed;
        }
      }
      const int64_t keys = c.key_lengths.empty()
                               ? c.sizes.k_len
                               : c.key_lengths[static_cast<size_t>(b)];
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t n = c.KPos(b, j);
        k_lo = std::min(k_lo.value_or(n), n);
        k_hi = std::max(k_hi.value_or(n), n);
      }
    }
    if (q_lo) {
      ASSERT_EQ(s.min_q_pos, *q_lo) << seed;
      ASSERT_EQ(s.max_q_pos, *q_hi) << seed;
    }
    if (k_lo) {
      ASSERT_EQ(s.min_k_pos, *k_lo) << seed;
      ASSERT_EQ(s.max_k_pos, *k_hi) << seed;
    }
    // By index, a mask does not restrict positions.
    const bool by_position =
        !c.options.by_index || (c.q_pos.empty() && c.k_pos.empty());
    ASSERT_EQ(s.by_index, !by_position);
    ASSERT_EQ(s.causal, c.options.causal && by_position);
    ASSERT_EQ(s.windowed, c.options.window && by_position);
    if (c.options.causal && by_position) {
      ASSERT_GE(s.min_offset, 0) << seed;
    }
    if (c.options.window && by_position) {
      ASSERT_GE(s.min_offset, -c.options.window->right) << seed;
      ASSERT_LE(s.max_offset, c.options.window->left) << seed;
    }
    if (q_lo && k_lo) {
      ASSERT_GE(s.min_offset, std::min<int64_t>(*q_lo - *k_hi, 0)) << seed;
      ASSERT_LE(s.max_offset, std::max<int64_t>(*q_hi - *k_lo, 0)) << seed;
    }
  }
}

CallSizes OneHead(int64_t q_len, int64_t k_len) {
  return {.batch = 1,
          .q_heads = 1,
          .kv_heads = 1,
          .q_len = q_len,
          .k_len = k_len,
          .head_dim = 4,
          .value_dim = 4};
}

TEST(CallTest, ShapeOfPlainCallsIsTight) {
  const CallSizes s = OneHead(3, 10);
  AttentionOptions o;
  o.scale = 0.75;
  Shape shape = CallMask(s, o).ShapeOf(s, o);
  EXPECT_EQ(shape.scale, 0.75);
  EXPECT_EQ(shape.min_q_pos, 7);
  EXPECT_EQ(shape.max_q_pos, 9);
  EXPECT_EQ(shape.min_offset, -2);
  EXPECT_EQ(shape.max_offset, 9);
  o.causal = true;
  o.window = Window{.left = 4, .right = 4};
  shape = CallMask(s, o).ShapeOf(s, o);
  EXPECT_EQ(shape.min_offset, 0);
  EXPECT_EQ(shape.max_offset, 4);
}

// Consecutive positions across segments: 0 .. 2 and 3 .. 7.
TEST(CallTest, ShapeOfSegmentsIsTight) {
  const CallSizes s = OneHead(8, 8);
  const std::vector<int64_t> segments = {5, 5, 5, 1, 1, 1, 1, 1};
  AttentionOptions o;
  o.q_segments = o.k_segments = segments;
  Shape shape = CallMask(s, o).ShapeOf(s, o);
  EXPECT_EQ(shape.min_offset, -4);
  EXPECT_EQ(shape.max_offset, 4);
  EXPECT_EQ(shape.max_k_pos, 7);
  const std::vector<int64_t> lengths = {4};  // one key of the second
  o.key_lengths = lengths;
  shape = CallMask(s, o).ShapeOf(s, o);
  EXPECT_EQ(shape.min_offset, -2);
  EXPECT_EQ(shape.max_offset, 4);
  const std::vector<int64_t> others = {2, 2, 2, 2, 2, 2, 2, 2};
  o.k_segments = others;
  shape = CallMask(s, o).ShapeOf(s, o);
  EXPECT_EQ(shape.min_offset, 0);
  EXPECT_EQ(shape.max_offset, 0);
}

TEST(CallTest, PackNumbersTokensWithinTheirSequences) {
  const std::vector<int64_t> lengths = {3, 0, 2};
  const PackedTokens packed = Pack(lengths);
  EXPECT_EQ(packed.positions, (std::vector<int64_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(packed.segments, (std::vector<int64_t>{0, 0, 0, 2, 2}));
  EXPECT_TRUE(Pack({}).positions.empty());
  const std::vector<int64_t> negative = {2, -1};
  EXPECT_EQ(ErrorOf([&] { Pack(negative); }),
            "a packed length must not be negative, got -1");
}

struct Inputs {
  std::vector<int64_t> q = {2, 4, 5, 8}, k = {2, 2, 6, 8}, v = {2, 2, 6, 3};
};

std::string Refusal(const Inputs& in, const AttentionOptions& options = {}) {
  return ErrorOf([&] {
    CheckCall(RandomTensor(in.q, 1), RandomTensor(in.k, 2),
              RandomTensor(in.v, 3), options);
  });
}

TEST(CallTest, ReadsSizesOffTheTensors) {
  const Inputs in;
  const CallSizes s = CheckCall(RandomTensor(in.q, 1), RandomTensor(in.k, 2),
                                RandomTensor(in.v, 3), {});
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.q_heads, 4);
  EXPECT_EQ(s.kv_heads, 2);
  EXPECT_EQ(s.q_len, 5);
  EXPECT_EQ(s.k_len, 6);
  EXPECT_EQ(s.head_dim, 8);
  EXPECT_EQ(s.value_dim, 3);
}

TEST(CallTest, RefusesTensorsThatDoNotMatch) {
  EXPECT_EQ(Refusal({.q = {4, 5, 8}}),
            "q, k and v must be [batch, heads, length, dim], got f64 [4, 5, "
            "8], f64 [2, 2, 6, 8] and f64 [2, 2, 6, 3]");
  EXPECT_EQ(Refusal({.k = {1, 2, 6, 8}}),
            "q f64 [2, 4, 5, 8], k f64 [1, 2, 6, 8] and v f64 [2, 2, 6, 3] do "
            "not match");
  EXPECT_EQ(Refusal({.k = {2, 2, 6, 7}}),
            "q f64 [2, 4, 5, 8], k f64 [2, 2, 6, 7] and v f64 [2, 2, 6, 3] do "
            "not match");
  EXPECT_EQ(Refusal({.v = {2, 2, 5, 3}}),
            "q f64 [2, 4, 5, 8], k f64 [2, 2, 6, 8] and v f64 [2, 2, 5, 3] do "
            "not match");
  EXPECT_EQ(Refusal({.k = {2, 3, 6, 8}, .v = {2, 3, 6, 3}}),
            "4 query heads cannot share 3 key heads");
  EXPECT_EQ(Refusal({.q = {2, 0, 5, 8}}),
            "0 query heads cannot share 2 key heads");
  EXPECT_EQ(Refusal({.q = {2, 4, 5, 0}, .k = {2, 2, 6, 0}}),
            "head dims must be positive, got 0 and 3");
  EXPECT_EQ(ErrorOf([] { CheckCall({}, {}, {}, {}); }),
            "q, k and v must be [batch, heads, length, dim], got none, none "
            "and none");
}

TEST(CallTest, RefusesBadOptions) {
  const auto refusal = [](const auto& change) {
    AttentionOptions o;
    change(o);
    return Refusal({}, o);
  };
  EXPECT_EQ(refusal([](auto& o) { o.scale = NAN; }),
            "scale must be finite, got nan");
  EXPECT_EQ(refusal([](auto& o) { o.softcap = -1.0; }),
            "softcap must lie in [1e-18, 1e+18] or be left out, got -1");
  for (double softcap : {0.0, 1e308, 1e-300, double(NAN)}) {
    EXPECT_EQ(
        refusal([&](auto& o) { o.softcap = softcap; }),
        fmt::format("softcap must lie in [1e-18, 1e+18] or be left out, got {}",
                    softcap));
  }
  EXPECT_EQ(refusal([](auto& o) { o.window = Window{.left = -1}; }),
            "a window reaches -1 back and 0 ahead: neither may be negative");
  const std::vector<int64_t> four = {0, 1, 2, 3}, five = {0, 1, 2, 3, 4};
  const std::vector<int64_t> six = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(refusal([&](auto& o) { o.q_positions = four; }),
            "q_positions must have 5 (or 10) entries, got 4");
  EXPECT_EQ(refusal([&](auto& o) { o.k_positions = five; }),
            "k_positions must have 6 (or 12) entries, got 5");
  EXPECT_EQ(refusal([&](auto& o) {
              o.q_segments = five;
              o.k_segments = five;
            }),
            "k_segments must have 6 (or 12) entries, got 5");
  EXPECT_EQ(refusal([&](auto& o) { o.q_segments = five; }),
            "q_segments and k_segments must be given together");
  std::vector<int64_t> far = six;
  far[3] = kHighestPosition + 1;
  EXPECT_EQ(refusal([&](auto& o) { o.k_positions = far; }),
            "k_positions must lie in [-2305843009213693952, "
            "2305843009213693951], got 2305843009213693952");
  EXPECT_EQ(refusal([&](auto& o) { o.key_lengths = six; }),
            "key_lengths must have 2 entries, got 6");
  const std::vector<int64_t> lengths = {6, 7};
  EXPECT_EQ(refusal([&](auto& o) { o.key_lengths = lengths; }),
            "a key length must lie in [0, 6], got 7");
}

TEST(CallTest, RefusesBadOperands) {
  const auto refusal = [](const auto& change) {
    AttentionOptions o;
    change(o);
    return Refusal({}, o);
  };
  const auto zeros = [](std::vector<int64_t> shape) {
    return Tensor::Zeros(DType::kF32, std::move(shape));
  };
  const uint8_t byte = 1;
  EXPECT_EQ(refusal([&](auto& o) {
              o.mask = {.data = &byte, .shape = {1, 2, 5, 6}, .strides = {}};
            }),
            "the mask must be [2, 4, 5, 6], where any axis but the last may be "
            "1, got [1, 2, 5, 6]");
  EXPECT_EQ(refusal([&](auto& o) {
              o.mask = {.data = &byte, .shape = {1, 1, 5, 1}, .strides = {}};
            }),
            "the mask must be [2, 4, 5, 6], where any axis but the last may be "
            "1, got [1, 1, 5, 1]");
  EXPECT_EQ(refusal([&](auto& o) {
              o.pair_bias = zeros({4, 5, 6});
            }),
            "pair_bias must be [2, 4, 5, 6], where any axis but the last may "
            "be 1, got [4, 5, 6]");
  EXPECT_EQ(refusal([&](auto& o) {
              o.key_bias = zeros({2, 2, 6});
            }),
            "key_bias must be [2, 4, 6], where any axis but the last may be 1, "
            "got [2, 2, 6]");
  EXPECT_EQ(refusal([&](auto& o) {
              o.table_queries = zeros({2, 4, 6, 3});
            }),
            "table_queries must be [2, 4, 5, width], got f32 [2, 4, 6, 3]");
  EXPECT_EQ(refusal([&](auto& o) { o.sinks = zeros({2}); }),
            "sinks must have one logit for each of 4 heads, got f32 [2]");
  EXPECT_EQ(
      refusal([&](auto& o) {
        o.sinks = Tensor::From({4}, std::vector<double>{0, 1, INFINITY, 0});
      }),
      "a sink must be below infinity, got inf for head 2");
  for (double rate : {1.0, -0.5, double(NAN)}) {
    EXPECT_EQ(refusal([&](auto& o) { o.dropout.rate = rate; }),
              fmt::format("dropout must lie in [0, 1), got {}", rate));
  }
  EXPECT_EQ(refusal([&](auto& o) { o.dropout.key_stride = 0; }),
            "dropout numbers tokens by strides of at least 1, got 1 and 0");
  EXPECT_EQ(refusal([&](auto& o) { o.chunk = 0; }),
            "a chunk must have at least 1 position, got 0");
  const std::vector<int64_t> prefix = {6, 7}, one = {3};
  EXPECT_EQ(refusal([&](auto& o) { o.prefix_lengths = prefix; }),
            "a prefix must be of 0 to 6 keys, got 7");
  EXPECT_EQ(refusal([&](auto& o) { o.prefix_lengths = one; }),
            "prefix_lengths must have 2 entries, got 1");
}

TEST(CallTest, RefusesGradientsOfNothing) {
  const CallSizes s{.batch = 2, .q_heads = 4, .q_len = 5};
  EXPECT_EQ(ErrorOf([&] {
              CheckBackward(s, {}, {.d_lse = RandomTensor({2, 4, 6}, 1)});
            }),
            "d_lse must be [2, 4, 5], got f64 [2, 4, 6]");
  EXPECT_EQ(
      ErrorOf([&] { CheckBackward(s, {}, {.d_lse = {}, .pair_bias = true}); }),
      "the gradient of the pair bias was requested, but there is none");
  AttentionOptions options;
  options.table_queries = RandomTensor({2, 4, 5, 3}, 1);
  EXPECT_EQ(ErrorOf([&] { CheckTableQueries({}, options); }),
            "table_queries f64 [2, 4, 5, 3] need a query table, but the terms "
            "have none");
}

}  // namespace
}  // namespace locus::testing

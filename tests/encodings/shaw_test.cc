#include "locus/encodings/shaw.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(shaw);
LOCUS_COVERS(key_offset);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4, kDim = 8;

struct Clip {
  int64_t min, max;
};
constexpr Clip kClips[] = {{-3, 3}, {-2, 7}, {-5, 0}, {1, 4}};

// A random table shared by the heads, or one per head.
Tensor RandomRows(int64_t rows, bool per_head, uint64_t seed) {
  return per_head ? RandomTensor({kHeads, rows, kDim}, seed)
                  : RandomTensor({rows, kDim}, seed);
}

// Error against e = q.(k + pK_r) / sqrt(d), z = sum a (v + pV_r).
double ShawError(const Tensor& keys, const Tensor& values, Clip clip,
                 const PaperCase& c) {
  const auto row = [clip](int64_t m, int64_t n) {
    return std::clamp(m - n, clip.min, clip.max) - clip.min;
  };
  const auto score = [&](int64_t h, const auto& q, auto k, int64_t m,
                         int64_t n) {
    if (keys.defined()) {
      const std::vector<double> p = RowOf(keys, h, row(m, n));
      for (size_t d = 0; d < k.size(); ++d) k[d] += p[d];
    }
    return ScaledDot(q, k);
  };
  const auto value = [&](int64_t h, int64_t m, int64_t n) {
    return RowOf(values, h, row(m, n));
  };
  return PaperError(Shaw(keys, values, clip.min, clip.max), c, score,
                    values.defined() ? PaperValue(value) : nullptr);
}

// Which of keys and values are present.
constexpr struct {
  bool keys, values;
} kSides[] = {{true, false}, {false, true}, {true, true}};

TEST(ShawTest, MatchesPaperFormula) {
  for (const auto& side : kSides) {
    for (bool per_head : {false, true}) {
      for (Clip clip : kClips) {
        const int64_t rows = clip.max - clip.min + 1;
        const Tensor keys =
            side.keys ? RandomRows(rows, per_head, 1) : Tensor();
        const Tensor values =
            side.values ? RandomRows(rows, per_head, 2) : Tensor();
        for (bool causal : {false, true}) {
          for (int64_t first : {int64_t{0}, kFar}) {
            EXPECT_LE(ShawError(keys, values, clip,
                                {.causal = causal, .first_position = first}),
                      kPaperTolerance);
          }
        }
      }
    }
  }
}

TEST(ShawTest, TakesMixedTables) {
  // Shared keys with values per head, and float32 storage.
  const Tensor keys = RandomRows(7, /*per_head=*/false, 1).To(DType::kF32);
  const Tensor values = RandomRows(7, /*per_head=*/true, 2).To(DType::kF32);
  EXPECT_LE(ShawError(keys, values, {-3, 3}, {}), kPaperTolerance);
}

TEST(ShawTest, PullBackMatchesFiniteDifferences) {
  const PaperCase small{
      .batch = 1, .heads = kHeads, .kv_heads = 2, .length = 7};
  for (const auto& side : kSides) {
    for (bool per_head : {false, true}) {
      for (Clip clip : {Clip{-2, 2}, Clip{-1, 3}}) {
        const int64_t rows = clip.max - clip.min + 1;
        const Shaw shaw(side.keys ? RandomRows(rows, per_head, 1) : Tensor(),
                        side.values ? RandomRows(rows, per_head, 2) : Tensor(),
                        clip.min, clip.max);
        EXPECT_LE(PullBackError(shaw, small), kDifferenceTolerance);
      }
    }
  }
}

TEST(ShawTest, RefusesBadInput) {
  const Tensor rows = RandomTensor({7, kDim}, 1);
  EXPECT_EQ(ErrorOf([&] { Shaw(rows, rows, 3, -3); }),
            "clipping needs r_min <= r_max, got 3 > -3");
  EXPECT_EQ(ErrorOf([] { Shaw(Tensor(), Tensor(), -3, 3); }),
            "Shaw needs keys, values or both, got neither");
  EXPECT_EQ(ErrorOf([&] { Shaw(rows, Tensor(), -3, 4); }),
            "Shaw keys must be [8, D] or [heads, 8, D], got f64 [7, 8]");
  EXPECT_EQ(ErrorOf([&] { Shaw(Tensor(), rows, -2, 3); }),
            "Shaw values must be [6, D] or [heads, 6, D], got f64 [7, 8]");
  const auto attend = [](const Tensor& keys, const Tensor& values) {
    const Tensor x = RandomTensor({1, 2, 5, kDim}, 1);
    return ErrorOf(
        [&] { reference::Attention(x, x, x, Shaw(keys, values, -3, 3)); });
  };
  EXPECT_EQ(attend(RandomTensor({3, 7, kDim}, 1), Tensor()),
            "the query table f64 [3, 7, 8] has 3 heads, but the call has 2");
  EXPECT_EQ(attend(RandomTensor({7, 6}, 1), Tensor()),
            "the query table must be [heads, 7, 8], got f64 [1, 7, 6]");
  EXPECT_EQ(attend(Tensor(), RandomTensor({7, 6}, 1)),
            "the value table f64 [1, 7, 6] does not match v f64 [1, 2, 5, 8]");
  EXPECT_EQ(ErrorOf([&] {
              Shaw(rows, rows, -3, 3).WithParams({&rows, 1});
            }),
            "shaw has 2 trainable parameters, got 1");
}

TEST(KeyOffsetTest, MatchesPaperFormula) {
  for (bool per_head : {false, true}) {
    for (DType dtype : {DType::kF64, DType::kF32}) {
      const Tensor rows = RandomRows(2 * 17 - 1, per_head, 3).To(dtype);
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          const PaperCase c{.causal = causal, .first_position = first};
          // f_k = W_K x_n + p_(m-n)
          const auto score = [&](int64_t h, const auto& q, auto k, int64_t m,
                                 int64_t n) {
            const std::vector<double> p = RowOf(rows, h, m - n + 16);
            for (size_t d = 0; d < k.size(); ++d) k[d] += p[d];
            return ScaledDot(q, k);
          };
          EXPECT_LE(PaperError(KeyOffset(rows), c, score), kPaperTolerance);
        }
      }
    }
  }
}

TEST(KeyOffsetTest, IsShawWithoutClipping) {
  const Tensor rows = RandomRows(2 * 5 - 1, /*per_head=*/true, 3);
  const Tensor x = RandomTensor({1, kHeads, 5, kDim}, 1);
  EXPECT_EQ(reference::Attention(x, x, x, KeyOffset(rows)).out.ToVector(),
            reference::Attention(x, x, x, Shaw(rows, Tensor(), -4, 4))
                .out.ToVector());
}

TEST(KeyOffsetTest, PullBackMatchesFiniteDifferences) {
  for (bool per_head : {false, true}) {
    EXPECT_LE(PullBackError(KeyOffset(RandomRows(11, per_head, 3)),
                            {.batch = 1, .length = 6}),
              kDifferenceTolerance);
  }
}

TEST(KeyOffsetTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] {
              KeyOffset(RandomTensor({6, 8}, 1));
            }),
            "key offsets need 2M - 1 rows, [2M - 1, D] or [heads, 2M - 1, D], "
            "got f64 [6, 8]");
  EXPECT_EQ(ErrorOf([] { KeyOffset(RandomTensor({7}, 1)); }),
            "key offsets need 2M - 1 rows, [2M - 1, D] or [heads, 2M - 1, D], "
            "got f64 [7]");
  // There is no fallback past the table.
  const Tensor x = RandomTensor({1, 1, 5, 8}, 1);
  EXPECT_EQ(ErrorOf([&] {
              reference::Attention(x, x, x, KeyOffset(RandomTensor({7, 8}, 1)));
            }),
            "the query table covers offsets -3 .. 3, but the call has offsets "
            "-4 .. 4");
}

}  // namespace
}  // namespace locus::testing

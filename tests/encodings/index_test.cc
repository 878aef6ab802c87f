#include "locus/encodings/index.h"

#include "support/encoding_checks.h"
#include "support/input_checks.h"

LOCUS_COVERS(index);
LOCUS_COVERS(normalised_index);

namespace locus::testing {
namespace {

// value(pos) in every channel of x, or zeros and the value in an extra channel.
std::vector<double> ScalarRow(ScalarMode mode, size_t dim, double value) {
  if (mode == ScalarMode::kAdd) return std::vector<double>(dim, value);
  std::vector<double> row(dim + 1, 0.0);
  row.back() = value;
  return row;
}

TEST(IndexTest, MatchesPaperFormula) {
  for (ScalarMode mode : {ScalarMode::kAdd, ScalarMode::kConcatenate}) {
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const InputCase c{.widen = mode == ScalarMode::kAdd ? 0 : 1,
                          .first_position = first,
                          .causal = causal};
        EXPECT_LE(InputError(
                      Index(8, mode), c,
                      [&](int64_t p) { return ScalarRow(mode, 8, double(p)); }),
                  kPaperTolerance);
      }
    }
  }
}

TEST(NormalisedIndexTest, MatchesPaperFormula) {
  for (ScalarMode mode : {ScalarMode::kAdd, ScalarMode::kConcatenate}) {
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const InputCase c{.widen = mode == ScalarMode::kAdd ? 0 : 1,
                          .first_position = first,
                          .causal = causal};
        // The last position of the call is 1 ...
        const double last = double(first + c.length - 1);
        EXPECT_LE(InputError(NormalisedIndex(8, mode), c,
                             [&](int64_t p) {
                               return ScalarRow(mode, 8, double(p) / last);
                             }),
                  kPaperTolerance);
        // ... unless a length is given.
        EXPECT_LE(InputError(NormalisedIndex(8, mode, /*length=*/101), c,
                             [&](int64_t p) {
                               return ScalarRow(mode, 8, double(p) / 100.0);
                             }),
                  kPaperTolerance);
      }
    }
  }
}

TEST(NormalisedIndexTest, SamePositionChangesWithTheLength) {
  const NormalisedIndex index(1);
  EXPECT_EQ(index.Embed(PositionsFrom(0, 3)).ToVector(),
            (std::vector<double>{0.0, 0.5, 1.0}));
  EXPECT_EQ(index.Embed(PositionsFrom(0, 5)).At(1, 0), 0.25);
  // A single token, or none, has no length to divide by.
  EXPECT_EQ(index.Embed(PositionsFrom(0, 1)).At(0, 0), 0.0);
  EXPECT_EQ(index.Embed({}).size(0), 0);
}

TEST(IndexTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { Index(0); }),
            "the index's dim must be a positive number, at most 2^24, got 0");
  EXPECT_EQ(ErrorOf([] { NormalisedIndex(-3); }),
            "the normalised index's dim must be a positive number, at most "
            "2^24, got -3");
  EXPECT_EQ(ErrorOf([] { NormalisedIndex(8, ScalarMode::kAdd, 0); }),
            "the normalised index's length must be positive, got 0");
  Shape wide = Shape::SelfAttention(1, 8, 4);
  wide.max_k_pos = int64_t{1} << 30;
  EXPECT_EQ(ErrorOf([&] { Index(8).Lower(wide); }),
            "the positions of an input table span 0 .. 1073741824, more than "
            "2^27 in one call");
}

}  // namespace
}  // namespace locus::testing

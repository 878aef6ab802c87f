#include "locus/encodings/binary.h"

#include "support/encoding_checks.h"
#include "support/input_checks.h"

LOCUS_COVERS(binary);

namespace locus::testing {
namespace {

// Digits by repeated division, least significant first.
std::vector<double> Digits(int64_t position, size_t bits, size_t dim) {
  std::vector<double> row(dim, 0.0);
  for (size_t c = 0; c < bits; ++c) {
    row[c] = double(position % 2);
    position /= 2;
  }
  return row;
}

TEST(BinaryTest, MatchesPaperFormula) {
  for (bool causal : {false, true}) {
    for (int64_t first : {int64_t{0}, kFar}) {
      const InputCase c{.dim = 24, .first_position = first, .causal = causal};
      for (int64_t bits : {20, 24}) {
        EXPECT_LE(
            InputError(Binary(bits, /*dim=*/24), c,
                       [&](int64_t p) { return Digits(p, size_t(bits), 24); }),
            kPaperTolerance);
      }
    }
  }
}

TEST(BinaryTest, HoldsKnownDigits) {
  EXPECT_EQ(Binary(4).Embed(std::vector<int64_t>{0, 7, 8, 13}).ToVector(),
            (std::vector<double>{0, 0, 0, 0,  //
                                 1, 1, 1, 0,  // from 7 to 8 all four flip
                                 0, 0, 0, 1,  //
                                 1, 0, 1, 1}));
  // The widest one can represent its last position.
  const int64_t last = (int64_t{1} << 62) - 1;
  EXPECT_EQ(Binary(62).Embed({&last, 1}).ToVector(),
            std::vector<double>(62, 1.0));
}

TEST(BinaryTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { Binary(0); }),
            "binary digits must number 1 to 62, got 0");
  EXPECT_EQ(ErrorOf([] { Binary(63); }),
            "binary digits must number 1 to 62, got 63");
  EXPECT_EQ(ErrorOf([] { Binary(8, 4); }),
            "8 binary digits do not fit 4 channels");
  EXPECT_EQ(ErrorOf([] { Binary(4).Embed(std::vector<int64_t>{16}); }),
            "4 binary digits hold positions 0 .. 15, got 16");
  EXPECT_EQ(ErrorOf([] { Binary(4).Embed(std::vector<int64_t>{-1}); }),
            "4 binary digits hold positions 0 .. 15, got -1");
  EXPECT_EQ(ErrorOf([] { Binary(4).Lower(Shape::SelfAttention(1, 8, 17)); }),
            "4 binary digits hold positions 0 .. 15, got 16");
}

}  // namespace
}  // namespace locus::testing

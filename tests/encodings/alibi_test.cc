#include "locus/encodings/alibi.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(alibi);

namespace locus::testing {
namespace {

void ExpectSlopes(int64_t heads, const std::vector<double>& expected) {
  EXPECT_LE(RelativeError(Tensor::From({heads}, Alibi::Slopes(heads)),
                          Tensor::From({heads}, expected)),
            kPaperTolerance)
      << heads << " heads";
}

// Press et al., section 3, and their code for other head counts.
TEST(AlibiTest, SlopesHoldPublishedValues) {
  const double r = 0.7071067811865476;  // 2^-0.5
  ExpectSlopes(1, {1 / 256.});
  ExpectSlopes(8, {1 / 2., 1 / 4., 1 / 8., 1 / 16., 1 / 32., 1 / 64., 1 / 128.,
                   1 / 256.});
  ExpectSlopes(12, {1 / 2., 1 / 4., 1 / 8., 1 / 16., 1 / 32., 1 / 64., 1 / 128.,
                    1 / 256., r, r / 2, r / 4, r / 8});
  ExpectSlopes(16,
               {r, 1 / 2., r / 2, 1 / 4., r / 4, 1 / 8., r / 8, 1 / 16., r / 16,
                1 / 32., r / 32, 1 / 64., r / 64, 1 / 128., r / 128, 1 / 256.});
}

TEST(AlibiTest, BiasMaxStretchesTheExponents) {
  const std::vector<double> slopes = Alibi::Slopes(4, /*bias_max=*/16.0);
  EXPECT_EQ(slopes, (std::vector<double>{0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16}));
}

TEST(AlibiTest, MatchesPaperFormula) {
  const std::vector<double> past = {0.5, 0.1, 2.0, 0.0};
  const std::vector<double> future = {0.3, 0.7, 0.2, 1.0};
  // 4 heads by the formula: 2^-2, 2^-4, 2^-6, 2^-8.
  const std::vector<double> published = {0.25, 0.0625, 0.015625, 0.00390625};
  struct Form {
    Alibi alibi;
    std::vector<double> past, future;
  };
  const Form forms[] = {
      {Alibi(4), published, published},
      {Alibi(4, {.slopes = past}), past, past},
      {Alibi(4, {.slopes = past, .future_slopes = future}), past, future},
      {Alibi(4, {.future_slopes = future}), published, future}};
  for (const Form& form : forms) {
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const PaperCase c{.causal = causal, .first_position = first};
        // q.k / sqrt(d) - slope_h |m - n|
        const auto score = [&](int64_t h, const auto& q, const auto& k,
                               int64_t m, int64_t n) {
          const double slope = (m >= n ? form.past : form.future)[size_t(h)];
          return ScaledDot(q, k) - slope * double(std::abs(m - n));
        };
        EXPECT_LE(PaperError(form.alibi, c, score), kPaperTolerance);
      }
    }
  }
}

TEST(AlibiTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { Alibi(0); }),
            "ALiBi's number of heads must be a positive number, at most 2^24, "
            "got 0");
  EXPECT_EQ(ErrorOf([] { Alibi(4, {.bias_max = NAN}); }),
            "ALiBi's bias_max must be positive and finite, got nan");
  EXPECT_EQ(ErrorOf([] {
              Alibi(4, {.slopes = {1.0, 2.0}});
            }),
            "ALiBi for 4 heads needs 4 slopes, got 2");
  EXPECT_EQ(ErrorOf([] {
              Alibi(2, {.slopes = {1.0, NAN}});
            }),
            "an ALiBi slope is not finite: nan");
  EXPECT_EQ(ErrorOf([] {
              Alibi(2, {.future_slopes = {1.0, INFINITY}});
            }),
            "an ALiBi slope is not finite: inf");
  EXPECT_EQ(ErrorOf([] { Alibi(2, {.future_slopes = {1.0}}); }),
            "ALiBi for 2 heads needs 2 slopes, got 1");
  EXPECT_EQ(ErrorOf([] { Alibi(8).Lower(Shape::SelfAttention(4, 8, 4)); }),
            "ALiBi was made for 8 heads, but the call has 4");
}

}  // namespace
}  // namespace locus::testing

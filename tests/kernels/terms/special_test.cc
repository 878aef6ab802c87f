// Biases by two-dimensional offsets, with a special token such as [CLS], and by
// a profile.
#include <numeric>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 2, kDim = 16;

Call Biased(const BucketMap& map, int64_t length) {
  Call call;
  call.q = RandomTensor({1, kHeads, length, kDim}, 1);
  call.k = RandomTensor({1, kHeads, length, kDim}, 2);
  call.v = RandomTensor({1, kHeads, length, kDim}, 3);
  call.q_pos.resize(static_cast<size_t>(length));
  std::iota(call.q_pos.begin(), call.q_pos.end(), 0);
  call.k_pos = call.q_pos;
  call.terms.scale.scale = 0.25;
  call.terms.bias = BiasTable{RandomTensor({kHeads, map.count}, 4), map};
  return AsFloat(call);
}

void ExpectEqualsReference(const Call& call) {
  ExpectForwardEqualsReference(call);
  ExpectBackwardEqualsReference(call, 5);
}

// Rows of 21 tokens: more than a vector, and not a multiple of one. With a
// class token at 0 they begin at 1.
BucketMap Raster(bool with_token) {
  BucketMap map = BucketMap::Window2D(14, 21);
  if (!with_token) return map;
  map.grid->origin = 1;
  return map.WithSpecial(0, /*both=*/true);
}

TEST(ApartTest, GridsEqualReference) {
  OnEveryTarget([] { ExpectEqualsReference(Biased(Raster(false), 14 * 21)); });
  Call call = Biased(Raster(false), 14 * 21);
  call.options.causal = true;
  ExpectEqualsReference(call);
}

TEST(ApartTest, GridsWithATokenApartEqualReference) {
  OnEveryTarget(
      [] { ExpectEqualsReference(Biased(Raster(true), 1 + 14 * 21)); });
  Call call = Biased(Raster(true), 1 + 14 * 21);
  call.options.window = Window{.left = 100, .right = 30};
  ExpectEqualsReference(call);
}

// A special token in the middle, where runs end, and where the map is
// saturated.
TEST(ApartTest, TokensApartEqualReference) {
  for (int64_t position : {0, 37, 260, 299}) {
    for (bool both : {false, true}) {
      const BucketMap map = BucketMap::T5(32, 64, /*bidirectional=*/true)
                                .WithSpecial(position, both);
      ExpectEqualsReference(Biased(map, 300));
    }
  }
}

// Packed sequences have a special token each, and tokens are in any order.
TEST(ApartTest, PackedAndScatteredEqualReference) {
  Call call = Biased(Raster(true), 1 + 14 * 21);
  const size_t length = call.q_pos.size();
  for (size_t i = 0; i < length; ++i) {
    call.q_pos[i] = static_cast<int64_t>(i * 7 % 100);
    call.q_seg.push_back(static_cast<int64_t>(i / 100));
  }
  call.k_pos = call.q_pos;
  call.k_seg = call.q_seg;
  ExpectEqualsReference(call);
  // All of them in one segment.
  call.q_seg.clear();
  call.k_seg.clear();
  ExpectEqualsReference(call);
}

// Tables as well, forward, with dropout and weights; their gradients are
// rejected.
TEST(ApartTest, TablesEqualReferenceForward) {
  const BucketMap spaced = BucketMap::T5(32, 64, /*bidirectional=*/true)
                               .WithSpecial(30, /*both=*/true);
  for (const BucketMap& map : {Raster(false), Raster(true), spaced}) {
    for (int which = 0; which < 3; ++which) {
      Call call = Biased(map, 120);
      const BucketTable table{RandomTensor({kHeads, map.count, kDim}, 6), map};
      if (which == 0) call.terms.q_table = table;
      if (which == 1) call.terms.k_table = table;
      if (which == 2) call.terms.v_table = table;
      call.options.return_lse = true;
      if (which > 0) {
        call.options.dropout = {.rate = 0.3, .seed = 2};
        call.options.return_weights = true;
      }
      ASSERT_EQ(DriverOf(call), "decode");
      const AttentionOptions options = call.Options();
      const AttentionResult actual =
          Attention(call.q, call.k, call.v, call.terms, options);
      ExpectResultEqualsReference(
          call, actual,
          reference::Attention(call.q, call.k, call.v, call.terms, options));
      EXPECT_EQ(ErrorOf([&] {
                  AttentionBackward(actual.out, call.q, call.k, call.v, actual,
                                    call.terms, options);
                }),
                "there is no backward pass through a table over a 2-D window "
                "or with a special token; a bias may have both");
    }
  }
}

// Far keys and the gains of late queries overflow together: x is infinite, in
// the last segment, and its slope hides the key.
TEST(ApartTest, ProfilesThatOverflowEqualReference) {
  constexpr int64_t kLength = 300;
  Call call = Biased(BucketMap::Clip(-1, 1), kLength);
  const std::vector<double> base = {0.2, -0.1, 0.4, 0.0};
  const std::vector<double> slope = {0.5, 0.1, -0.3, -1.0};
  BiasProfile profile{.knots = {0.5, 0.5, 7.0},
                      .base = Tensor::From({1, 4}, base),
                      .slope = Tensor::From({1, 4}, slope)};
  for (int64_t n = 0; n < kLength; ++n) {
    profile.distance.push_back(n < 40 ? 0.1 * static_cast<double>(n) : 1e200);
    profile.row_gain.push_back(n < 200 ? 1.0 : 1e200);
  }
  call.terms.bias = profile;
  OnEveryTarget([&] { ExpectForwardEqualsReference(call); });
}

}  // namespace
}  // namespace locus::testing

// Products with int8 rows are exact integer sums times a scale, however the CPU
// adds pairs.
#include <span>

#include "kernels/compare.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/stream_int8_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/simd/stream_int8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Whether this target multiplies integers, and whether it may fuse pairs.
bool HasIntegers() { return LOCUS_INT8_PRODUCTS != 0; }
bool Fuses() { return stream::FusesPairs(); }

#if LOCUS_INT8_PRODUCTS
// s[r][j] = q[r].key j for `rows` queries; rows are `stride` floats apart.
void Dots(bool fused, const int8_t* keys, int64_t count, const int16_t* q,
          int64_t rows, int64_t dim, float* s, int64_t stride) {
  const stream::RowsOf<int8_t> all{.base = keys, .stride = dim};
  stream::WithPairs(fused, [&](auto pairs) {
    stream::DotRows</*kPrefetch=*/false, stream::ByIntegers<pairs()>>(
        all, 0, count, q, dim, rows, dim, s, stride);
  });
}

// out[r] += sum p[r][j] v_j.
void WeightedSums(bool fused, const int8_t* values, int64_t count,
                  const float* p, int64_t rows, int64_t dim, float* out) {
  const stream::RowsOf<int8_t> all{.base = values, .stride = dim};
  stream::WithPairs(fused, [&](auto pairs) {
    stream::AddIntegersWeighted<pairs(), /*kPrefetch=*/false>(
        all, 0, count, p, count, rows, dim, out, dim);
  });
}
#else
void Dots(bool, const int8_t*, int64_t, const int16_t*, int64_t, int64_t,
          float*, int64_t) {}
void WeightedSums(bool, const int8_t*, int64_t, const float*, int64_t, int64_t,
                  float*) {}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(HasIntegers);
HWY_EXPORT(Fuses);
HWY_EXPORT(Dots);
HWY_EXPORT(WeightedSums);

namespace testing {
namespace {

template <typename T>
std::vector<T> Integers(int64_t count, int most, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<int> draw(-most, most);
  std::vector<T> all;
  for (int64_t n = 0; n < count; ++n)
    all.push_back(static_cast<T>(draw(engine)));
  return all;
}

// Plain and, if there is such an instruction, fused.
std::vector<bool> Ways() {
  return HWY_DYNAMIC_DISPATCH(Fuses)() ? std::vector{false, true}
                                       : std::vector{false};
}

TEST(StreamInt8Test, DotsAreExactSums) {
  OnEveryTarget([] {
    if (!HWY_DYNAMIC_DISPATCH(HasIntegers)()) return;
    for (int64_t dim : {32, 64, 96, 128, 256}) {
      for (int64_t rows : {1, 2, 3, 4, 7}) {
        constexpr int64_t kKeys = 37, kStride = kKeys + 3;
        const auto keys = Integers<int8_t>(kKeys * dim, 127, 1);
        const auto q = Integers<int16_t>(rows * dim, 32767, 2);
        for (bool fused : Ways()) {
          std::vector<float> s(static_cast<size_t>(rows * kStride));
          HWY_DYNAMIC_DISPATCH(Dots)
          (fused, keys.data(), kKeys, q.data(), rows, dim, s.data(), kStride);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t j = 0; j < kKeys; ++j) {
              // Lanes are added as floats on targets that have no other way.
              int64_t sum = 0, size = 0;
              for (int64_t d = 0; d < dim; ++d) {
                const int64_t product =
                    int64_t{q[static_cast<size_t>(r * dim + d)]} *
                    keys[static_cast<size_t>(j * dim + d)];
                sum += product;
                size += std::abs(product);
              }
              ASSERT_NEAR(s[static_cast<size_t>(r * kStride + j)], double(sum),
                          4 * kEps * double(size))
                  << fused << " " << dim << " " << r << " " << j;
            }
          }
        }
      }
    }
  });
}

TEST(StreamInt8Test, SumsFollowTheirWeights) {
  OnEveryTarget([] {
    if (!HWY_DYNAMIC_DISPATCH(HasIntegers)()) return;
    for (int64_t dim : {32, 64, 96, 128}) {
      for (int64_t rows : {1, 2, 3, 4, 7}) {
        for (int64_t count : {1, 2, 31, 32, 70}) {
          const auto values = Integers<int8_t>(count * dim, 127, 3);
          std::vector<float> p;
          for (int16_t x : Integers<int16_t>(rows * count, 32767, 4)) {
            p.push_back(std::abs(static_cast<float>(x)) / 32767.0F);
          }
          std::vector<std::vector<float>> found;
          for (bool fused : Ways()) {
            std::vector<float>& out =
                found.emplace_back(static_cast<size_t>(rows * dim), 0.5F);
            HWY_DYNAMIC_DISPATCH(WeightedSums)
            (fused, values.data(), count, p.data(), rows, dim, out.data());
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t d = 0; d < dim; ++d) {
                double sum = 0.5, size = 0.5;
                for (int64_t j = 0; j < count; ++j) {
                  const double product =
                      double(p[static_cast<size_t>(r * count + j)]) *
                      values[static_cast<size_t>(j * dim + d)];
                  sum += product;
                  size += std::abs(product);
                }
                // A weight is off by half of 2^-15 of the largest, which is at
                // most 1.
                ASSERT_NEAR(out[static_cast<size_t>(r * dim + d)], sum,
                            double(count) * 127 * 0x1p-16 + 8 * kEps * size)
                    << fused << " " << dim << " " << count << " " << r;
              }
            }
          }
          EXPECT_EQ(found.back(), found.front());
        }
      }
    }
  });
}

}  // namespace
}  // namespace testing
}  // namespace locus
#endif

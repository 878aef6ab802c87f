// The error of a rotation's cos and sin relative to the exact values, which
// MPFR computes: base^(-2p / d), its product with the position, and cos and sin
// of that, all with 160 bits, 100 more than float64 keeps of an angle of 2^24.
#ifndef LOCUS_TESTS_SUPPORT_ANGLE_ORACLE_H_
#define LOCUS_TESTS_SUPPORT_ANGLE_ORACLE_H_

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "locus/encodings/rope.h"

namespace locus::testing {

class AngleOracle {
 public:
  AngleOracle(int64_t dim, double base) : theta_(static_cast<size_t>(dim / 2)) {
    mpfr_inits2(kBits, angle_, sin_, cos_, nullptr);
    for (size_t p = 0; p < theta_.size(); ++p) {
      mpfr_init2(&theta_[p], kBits);
      mpfr_set_si(angle_, -2 * static_cast<long>(p), MPFR_RNDN);
      mpfr_div_si(angle_, angle_, dim, MPFR_RNDN);
      mpfr_set_d(&theta_[p], base, MPFR_RNDN);
      mpfr_pow(&theta_[p], &theta_[p], angle_, MPFR_RNDN);
    }
  }
  ~AngleOracle() {
    mpfr_clears(angle_, sin_, cos_, nullptr);
    for (auto& theta : theta_) mpfr_clear(&theta);
  }
  AngleOracle(const AngleOracle&) = delete;
  AngleOracle& operator=(const AngleOracle&) = delete;

  // The largest error of one position's cosines and sines in float32.
  double Error(const Rotation& rotation, int64_t position) {
    cosines_.resize(theta_.size());
    sines_.resize(theta_.size());
    rotation.CosSin(position, cosines_.data(), sines_.data());
    long double worst = 0.0L;
    for (size_t p = 0; p < theta_.size(); ++p) {
      mpfr_mul_si(angle_, &theta_[p], position, MPFR_RNDN);
      mpfr_sin_cos(sin_, cos_, angle_, MPFR_RNDN);
      const long double cos = mpfr_get_ld(cos_, MPFR_RNDN);
      const long double sin = mpfr_get_ld(sin_, MPFR_RNDN);
      worst = std::max(worst, std::abs(cos - static_cast<float>(cosines_[p])));
      worst = std::max(worst, std::abs(sin - static_cast<float>(sines_[p])));
    }
    return static_cast<double>(worst);
  }

  // The largest error over several positions.
  double Error(const Rotation& rotation,
               const std::vector<int64_t>& positions) {
    double worst = 0.0;
    for (int64_t p : positions) worst = std::max(worst, Error(rotation, p));
    return worst;
  }

 private:
  static constexpr mpfr_prec_t kBits = 160;
  std::vector<std::remove_extent_t<mpfr_t>> theta_;
  mpfr_t angle_, sin_, cos_;
  std::vector<double> cosines_, sines_;
};

// Positions below `end`: all up to `dense`, `strided` more at even steps,
// `random` more at random, and the neighbours of every power of two.
inline std::vector<int64_t> AnglePositions(int64_t end, int64_t dense,
                                           int64_t strided, int64_t random) {
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < std::min(dense, end); ++p) positions.push_back(p);
  for (int64_t n = 1; n <= strided; ++n) {
    positions.push_back((end - 1) / strided * n);
  }
  std::mt19937_64 engine(20);
  std::uniform_int_distribution<int64_t> any(0, end - 1);
  for (int64_t n = 0; n < random; ++n) positions.push_back(any(engine));
  for (int64_t power = 1; power <= end; power *= 2) {
    for (int64_t p = power - 2; p <= power + 2; ++p) {
      if (p >= 0 && p < end) positions.push_back(p);
    }
  }
  positions.push_back(end - 1);
  return positions;
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_SUPPORT_ANGLE_ORACLE_H_

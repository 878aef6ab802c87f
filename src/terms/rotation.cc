// Angles of a rotation, its id, and packed positions.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/fail.h"
#include "locus/rotary.h"
#include "locus/terms.h"

namespace locus {
namespace {

// A hash of 64-bit words. The finaliser of SplitMix64 spreads every bit after
// each word: signs and exponents of doubles are in the highest bits, where
// multiplication alone would leave them, so that they could cancel.
class Hash {
 public:
  void Add(uint64_t word) {
    uint64_t z = state_ + word + 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    state_ = z ^ (z >> 31);
  }
  void Add(int64_t word) { Add(static_cast<uint64_t>(word)); }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  uint64_t state() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325;
};

int64_t CoordinateOf(const Axis& axis, int64_t position) {
  const int64_t quotient = position / axis.divisor;
  return axis.modulus == 0 ? quotient : quotient % axis.modulus;
}

}  // namespace

int64_t Rotation::Coordinate(int64_t a, int64_t position) const {
  position -= origin.value_or(0);
  if (axes.empty() || position < packed_from) return position;
  return CoordinateOf(axes[static_cast<size_t>(a)], position);
}

double Rotation::Shifted(int64_t a, int64_t position) const {
  if (!Rotates(position)) return 0.0;
  return static_cast<double>(Coordinate(a, position)) +
         (axes.empty() ? 0.0 : axes[static_cast<size_t>(a)].offset);
}

TextPositions Rotation::After(std::span<const int64_t> positions) const {
  if (positions.empty()) return {};
  if (packed_from == 0 || positions.back() < packed_from) {
    return {.first = positions.back() + 1};
  }
  int64_t largest = 0, step = 0;
  for (const Axis& a : axes) {
    step += a.divisor;
    for (int64_t position : positions) {
      // The position of text may exceed the range of a coordinate; clamped, it
      // is past every valid position.
      largest = std::max(largest, position < packed_from
                                      ? std::min(position, a.modulus)
                                      : CoordinateOf(a, position));
    }
  }
  return {.first = packed_from + (largest + 1) * step, .step = step};
}

void Rotation::CosSin(int64_t position, double* cos, double* sin,
                      int64_t kv_head) const {
  const std::span<const double> frequencies = ThetaOf(kv_head);
  const bool mixed = Mixed();
  for (int64_t p = 0; p < NumPairs(); ++p) {
    const size_t at = static_cast<size_t>(p);
    const int64_t first = mixed ? 0 : AxisOf(p);
    const int64_t count = mixed ? NumAxes() : 1;
    const double* w = frequencies.data() + p * count;
    if (angles == AngleMode::kExact) {
      // The coordinate is exact in float64 up to 2^53; each product is rounded
      // once, and sin and cos reduce the sum exactly.
      double angle = 0.0;
      for (int64_t a = 0; a < count; ++a) {
        angle += Shifted(first + a, position) * w[a];
      }
      cos[at] = gain * std::cos(angle);
      sin[at] = gain * std::sin(angle);
    } else {
      float angle = 0.0F;
      for (int64_t a = 0; a < count; ++a) {
        angle += static_cast<float>(Shifted(first + a, position)) *
                 static_cast<float>(w[a]);
      }
      cos[at] = std::cos(angle) * static_cast<float>(gain);
      sin[at] = std::sin(angle) * static_cast<float>(gain);
    }
  }
}

Rotation Rotation::OfHead(int64_t kv_head) const {
  Rotation one = *this;
  const std::span<const double> own = ThetaOf(kv_head);
  one.theta.assign(own.begin(), own.end());
  one.heads = 1;
  return one;
}

uint64_t Rotation::Id() const {
  Hash hash;
  hash.Add(static_cast<uint64_t>(layout));
  hash.Add(rotary_dim);
  hash.Add(first_channel);
  hash.Add(heads);
  hash.Add(static_cast<uint64_t>(theta.size()));
  for (double t : theta) hash.Add(t);
  hash.Add(static_cast<uint64_t>(axis.size()));
  for (int32_t a : axis) hash.Add(static_cast<int64_t>(a));
  hash.Add(static_cast<uint64_t>(axes.size()));
  for (const Axis& a : axes) {
    hash.Add(a.divisor);
    hash.Add(a.modulus);
    hash.Add(a.offset);
  }
  hash.Add(static_cast<uint64_t>(origin.has_value()));
  hash.Add(origin.value_or(0));
  hash.Add(packed_from);
  hash.Add(static_cast<uint64_t>(log_decay.size()));
  for (double d : log_decay) hash.Add(d);
  hash.Add(gain);
  hash.Add(static_cast<uint64_t>(angles));
  return hash.state();
}

int64_t PackPosition(int64_t t, int64_t h, int64_t w) {
  for (int64_t axis : {t, h, w}) {
    if (axis < 0 || axis >= kPackedAxis) {
      Fail("a packed position holds coordinates from 0 to {}, got ({}, {}, {})",
           kPackedAxis - 1, t, h, w);
    }
  }
  return kPackedFrom + (t * kPackedAxis + h) * kPackedAxis + w;
}

}  // namespace locus

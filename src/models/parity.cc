#include "models/parity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace locus::models {
namespace {

using Floats = std::vector<float>;

// base^(2i / dim), the divisors of plain RoPE.
Floats Powers(int64_t dim, double base) {
  Floats powers;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers.push_back(std::pow(static_cast<float>(base), exponent));
  }
  return powers;
}

Floats Yarn(const YarnScaling& s, double base, int64_t dim) {
  const double r = static_cast<double>(dim);
  const auto pair_of = [&](double turns) {
    return r *
           std::log(static_cast<double>(s.original_length) /
                    (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(base));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, r - 1.0);
  if (low == high) high += 0.001;
  Floats theta = Powers(dim, base);
  for (size_t p = 0; p < theta.size(); ++p) {
    const float kept = 1.0F / theta[p];
    const float slowed = 1.0F / (static_cast<float>(s.factor) * theta[p]);
    const float ramp =
        std::clamp((static_cast<float>(p) - static_cast<float>(low)) /
                       static_cast<float>(high - low),
                   0.0F, 1.0F);
    const float share = 1.0F - ramp;
    theta[p] = slowed * (1.0F - share) + kept * share;
  }
  return theta;
}

Floats Llama3(const Llama3Scaling& s, double base, int64_t dim) {
  const auto length = static_cast<double>(s.original_length);
  const auto factor = static_cast<float>(s.factor);
  const double span = s.high_freq_factor - s.low_freq_factor;
  Floats theta = Powers(dim, base);
  for (float& x : theta) {
    const float w = 1.0F / x;
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / w;
    if (wavelength < static_cast<float>(length / s.high_freq_factor)) {
      x = w;
    } else if (wavelength > static_cast<float>(length / s.low_freq_factor)) {
      x = w / factor;
    } else {
      const float smooth = (static_cast<float>(length) / wavelength -
                            static_cast<float>(s.low_freq_factor)) /
                           static_cast<float>(span);
      x = (1.0F - smooth) * w / factor + smooth * w;
    }
  }
  return theta;
}

Floats LongRope(const std::vector<double>& divisors, double base, int64_t dim) {
  Floats theta = Powers(dim, base);
  for (size_t p = 0; p < theta.size(); ++p) {
    theta[p] = 1.0F / (static_cast<float>(divisors[p]) * theta[p]);
  }
  return theta;
}

}  // namespace

void MatchFloat32(int64_t head_dim, PairLayout layout, RopeOptions& rope) {
  const int64_t dim = rope.rotary_dim;
  Floats shorter, longer;
  LongRopeScaling exact;
  if (const auto* s = std::get_if<YarnScaling>(&rope.scaling)) {
    shorter = longer = Yarn(*s, rope.base, dim);
    exact.original_length = s->original_length;
  } else if (const auto* s = std::get_if<Llama3Scaling>(&rope.scaling)) {
    shorter = longer = Llama3(*s, rope.base, dim);
    exact.original_length = s->original_length;
  } else if (const auto* s = std::get_if<LongRopeScaling>(&rope.scaling)) {
    shorter = LongRope(s->short_factor, rope.base, dim);
    longer = LongRope(s->long_factor, rope.base, dim);
    exact.original_length = s->original_length;
  } else {
    return;
  }
  exact.attention_factor = Rope(head_dim, layout, rope).RotationFor(1).gain;
  RopeOptions plain = rope;
  plain.scaling = {};
  const auto theta = Rope(head_dim, layout, plain).RotationFor(1).theta;
  for (size_t p = 0; p < theta.size(); ++p) {
    exact.short_factor.push_back(theta[p] / shorter[p]);
    exact.long_factor.push_back(theta[p] / longer[p]);
  }
  rope.scaling = exact;
}

}  // namespace locus::models

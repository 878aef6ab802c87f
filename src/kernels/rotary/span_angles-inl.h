// Angles for keys that are rotated as they are read, in spans of consecutive
// positions. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_ROTARY_SPAN_ANGLES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_ROTARY_SPAN_ANGLES_INL_H_
#undef LOCUS_SRC_KERNELS_ROTARY_SPAN_ANGLES_INL_H_
#else
#define LOCUS_SRC_KERNELS_ROTARY_SPAN_ANGLES_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "kernels/simd/stream-inl.h"
#include "locus/terms.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// How keys are rotated.
//   kNone      not at all
//   kDone      they are stored rotated: queries rotate by their own position
//   kRelative  key n0 + t of a span rotates by t, queries by m - n0: one small
//              table serves every span
//   kAbsolute  both rotate by their own position, with a table as long as the
//              keys: for angles that are not additive (float32, several axes),
//              frequencies per head, and scattered positions
enum class KeyRotation { kNone, kDone, kRelative, kAbsolute };

// Keys at consecutive positions that share the angles of the queries: with 64
// keys, the table of a span has 64 x 64 pairs, 32 KiB at D = 128.
constexpr int64_t kSpanKeys = 64;
struct Span {
  int64_t first = 0;  // first key, in sorted order
  int64_t position = 0;
};

// Writes cos and sin of an offset x, times exp(log_decay x), in float32:
// [2][pairs].
inline void WriteAngles(const Rotation& r, const double* cos, const double* sin,
                        double x, float* to) {
  const size_t pairs = static_cast<size_t>(r.NumPairs());
  for (size_t p = 0; p < pairs; ++p) {
    const double gain =
        r.log_decay.empty() ? 1.0 : std::exp(r.log_decay[p] * x);
    to[p] = static_cast<float>(gain * cos[p]);
    to[pairs + p] = static_cast<float>(gain * sin[p]);
  }
}

// Angles of key t of a span, t = 0 .. 63: [kSpanKeys][2][pairs], cosines before
// sines. With t = 8 u + w, the angles of 8 u and of w are added, in float64: 16
// evaluations make 64 rows.
inline FloatBuffer SpanKeyAngles(const Rotation& r) {
  constexpr int64_t kStep = 8;
  const size_t pairs = static_cast<size_t>(r.NumPairs());
  Rotation unit = r;
  unit.gain = 1.0;
  std::vector<double> near_cos(kStep * pairs), near_sin(kStep * pairs);
  for (size_t w = 0; w < kStep; ++w) {
    unit.CosSin(static_cast<int64_t>(w), near_cos.data() + w * pairs,
                near_sin.data() + w * pairs);
  }
  FloatBuffer angles(kSpanKeys * 2 * r.NumPairs());
  std::vector<double> cos(pairs), sin(pairs), far_cos(pairs), far_sin(pairs);
  for (int64_t t = 0; t < kSpanKeys; ++t) {
    if (t % kStep == 0) r.CosSin(t, far_cos.data(), far_sin.data());
    const size_t w = static_cast<size_t>(t % kStep) * pairs;
    for (size_t p = 0; p < pairs; ++p) {
      cos[p] = far_cos[p] * near_cos[w + p] - far_sin[p] * near_sin[w + p];
      sin[p] = far_sin[p] * near_cos[w + p] + far_cos[p] * near_sin[w + p];
    }
    WriteAngles(r, cos.data(), sin.data(), static_cast<double>(-t),
                angles.data() + t * 2 * r.NumPairs());
  }
  return angles;
}

// Angles of queries relative to every span, m - n0.
class SpanQueryAngles {
 public:
  explicit SpanQueryAngles(const Rotation& rotation)
      : r_(rotation), angles_(static_cast<size_t>(4 * rotation.NumPairs())) {
    Rotation unit = rotation;
    unit.gain = 1.0;
    const int64_t pairs = rotation.NumPairs();
    unit.CosSin(kSpanKeys, angles_.data(), angles_.data() + pairs);
  }

  // Writes the angles of queries at `positions`: [spans][positions][2][pairs].
  void Write(const std::vector<Span>& spans, std::span<const int64_t> positions,
             float* to) noexcept;

 private:
  const Rotation& r_;
  // cos and sin of a whole span, and of the current query: [4][pairs].
  std::vector<double> angles_;
};

inline void SpanQueryAngles::Write(const std::vector<Span>& spans,
                                   std::span<const int64_t> positions,
                                   float* to) noexcept {
  const size_t pairs = static_cast<size_t>(r_.NumPairs());
  const double* step_cos = angles_.data();
  const double* step_sin = step_cos + pairs;
  double* cos = angles_.data() + 2 * pairs;
  double* sin = cos + pairs;
  // The angle decreases by kSpanKeys theta from one span to the next. One exact
  // evaluation serves 32 spans: each step adds two float64 roundings.
  constexpr size_t kExactEvery = 32;
  for (size_t n = 0; n < positions.size(); ++n) {
    for (size_t s = 0; s < spans.size(); ++s) {
      const int64_t x = positions[n] - spans[s].position;
      if (s % kExactEvery != 0 &&
          spans[s].position - spans[s - 1].position == kSpanKeys) {
        for (size_t p = 0; p < pairs; ++p) {
          const double c = cos[p], d = sin[p];
          cos[p] = c * step_cos[p] + d * step_sin[p];
          sin[p] = d * step_cos[p] - c * step_sin[p];
        }
      } else {
        r_.CosSin(x, cos, sin);
      }
      WriteAngles(r_, cos, sin, static_cast<double>(x),
                  to + (s * positions.size() + n) * 2 * pairs);
    }
  }
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_ROTARY_SPAN_ANGLES_INL_H_

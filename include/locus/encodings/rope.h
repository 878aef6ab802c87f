// Rotary position embedding, with the scalings of real models.
#ifndef LOCUS_ENCODINGS_ROPE_H_
#define LOCUS_ENCODINGS_ROPE_H_

#include <optional>
#include <variant>
#include <vector>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// Position interpolation: every frequency divided by `factor`.
struct LinearScaling {
  double factor = 1.0;
};

// NTK-aware base that grows with the longest sequence of the call:
// base * (factor * L / max_length - (factor - 1))^(r / (r - 2)) for L above
// max_length.
struct DynamicScaling {
  double factor = 1.0;
  int64_t max_length = 0;
};

// NTK-aware base, fixed: base * alpha^(r / (r - 2)).
struct AlphaScaling {
  double alpha = 1.0;
};

// YaRN: interpolates slow pairs, keeps fast ones, and blends in between.
struct YarnScaling {
  double factor = 1.0;
  int64_t original_length = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // round the ends of the blend to whole pairs
  // Multiplies cos and sin; absent: computed from mscale and mscale_all_dim if
  // both are set, else 0.1 ln(factor) + 1.
  std::optional<double> attention_factor = {};
  std::optional<double> mscale = {};
  std::optional<double> mscale_all_dim = {};
};

// LongRoPE: one divisor per pair, in one list for short and another for long
// sequences.
struct LongRopeScaling {
  std::vector<double> short_factor = {};  // [rotary_dim / 2]
  std::vector<double> long_factor = {};
  int64_t original_length = 0;
  double factor = 1.0;  // max_length / original_length
  std::optional<double> attention_factor = {};
};

// Llama 3.1: divides wavelengths above original_length / low_freq_factor.
struct Llama3Scaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_length = 8192;
};

// Frequencies of a full head, of which only the leading fraction `partial`
// rotates.
struct ProportionalScaling {
  double partial = 1.0;
  double factor = 1.0;
};

using RopeScaling = std::variant<std::monostate, LinearScaling, DynamicScaling,
                                 AlphaScaling, YarnScaling, LongRopeScaling,
                                 Llama3Scaling, ProportionalScaling>;

// Which channels of a head rotate when rotary_dim < head_dim.
enum class RotaryPlace : uint8_t { kLeading, kTrailing };

// Whether values are rotated as well, in the same channels.
enum class RotaryValues : uint8_t {
  kNone,
  kRelative,  // and outputs rotated back at the query (DeepSeek-V4)
  kAbsolute,  // and outputs left rotated (RoFormer's rotary_value)
};

struct RopeOptions {
  double base = 10000.0;
  int64_t rotary_dim = 0;  // 0: the whole head
  RotaryPlace place = RotaryPlace::kLeading;
  RopeScaling scaling = {};
  // Radians per position, [rotary_dim / 2], instead of base^(-2i / rotary_dim).
  std::vector<double> frequencies = {};
  AngleMode angles = AngleMode::kExact;
  RotaryValues values = RotaryValues::kNone;

  // Multiplies the softmax scale (DeepSeek: the square of its mscale).
  double softmax_factor = 1.0;
  // Query temperature 1 + beta ln(1 + floor((m + shift) / span)); 0: none.
  double temperature_beta = 0.0;
  int64_t temperature_shift = 0;
  int64_t temperature_span = 8192;
};

class Rope final : public Encoding {
 public:
  // The layout has no default: the wrong one fails silently.
  Rope(int64_t head_dim, PairLayout layout, RopeOptions options = {});

  std::string_view Name() const override { return "rope"; }
  int64_t head_dim() const { return head_dim_; }
  PairLayout layout() const { return layout_; }
  const RopeOptions& options() const { return options_; }
  Lowered Lower(const Shape& shape) const override;

  // The rotation for sequences up to `length` tokens, which matters only for
  // DynamicScaling and LongRopeScaling.
  Rotation RotationFor(int64_t length) const;
  // Whether the rotation depends on the length, so that cached keys become
  // stale (see KvCache::Rerotate).
  bool ChangesWithLength() const;

 private:
  int64_t head_dim_;
  PairLayout layout_;
  RopeOptions options_;
};

// base^(-2i / dim) for i = 0 .. dim/2 - 1.
std::vector<double> RopeFrequencies(int64_t dim, double base);

}  // namespace locus

#endif  // LOCUS_ENCODINGS_ROPE_H_

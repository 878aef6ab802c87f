// Sines of the position alone, and the sine-cosine pairs of Vaswani et al.
#ifndef LOCUS_ENCODINGS_SINUSOIDAL_H_
#define LOCUS_ENCODINGS_SINUSOIDAL_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// E[pos, j] = sin(pos / base^(j / dim)): unique and bounded, but a shift of the
// position is not a linear map of the row.
class SineOnly final : public Encoding {
 public:
  explicit SineOnly(int64_t dim, double base = 10000.0);

  std::string_view Name() const override { return "sine"; }
  int64_t dim() const { return dim_; }
  double base() const { return base_; }
  Lowered Lower(const Shape& shape) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  int64_t dim_;
  double base_;
};

// The channels of the sine and cosine of frequency i, and the frequencies.
enum class SinusoidLayout : uint8_t {
  kInterleaved,      // sin at 2i, cos at 2i + 1, base^(-2i/d): Vaswani et al.
  kHalves,           // all sines, then all cosines, base^(-2i/d): RoFormer
  kHalvesInclusive,  // the same with base^(-i/(d/2 - 1)): Whisper, M2M100
};

struct SinusoidalOptions {
  double base = 10000.0;
  SinusoidLayout layout = SinusoidLayout::kInterleaved;
  int64_t offset = 0;  // added to every position
};

class Sinusoidal final : public Encoding {
 public:
  explicit Sinusoidal(int64_t dim, SinusoidalOptions options = {});

  std::string_view Name() const override { return "sinusoidal"; }
  int64_t dim() const { return dim_; }
  const SinusoidalOptions& options() const { return options_; }
  Lowered Lower(const Shape& shape) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

  // Radians per position, [dim / 2].
  const std::vector<double>& Frequencies() const { return frequencies_; }
  // The rotation M(k) [dim, dim] with E[pos + k] = M(k) E[pos] for every pos.
  Tensor ShiftMap(int64_t k) const;

 private:
  int64_t SinAt(int64_t i) const;
  int64_t CosAt(int64_t i) const;

  int64_t dim_;
  SinusoidalOptions options_;
  std::vector<double> frequencies_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_SINUSOIDAL_H_

// The binary digits of the position.
#ifndef LOCUS_ENCODINGS_BINARY_H_
#define LOCUS_ENCODINGS_BINARY_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class Binary final : public Encoding {
 public:
  // Channel c holds bit c, least significant first; channels from `bits` up to
  // `dim` (0: `bits`) are zero. Positions must be in [0, 2^bits).
  explicit Binary(int64_t bits, int64_t dim = 0);

  std::string_view Name() const override { return "binary"; }
  int64_t bits() const { return bits_; }
  int64_t dim() const { return dim_; }
  Lowered Lower(const Shape& shape) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  int64_t bits_;
  int64_t dim_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_BINARY_H_

// Rotary positions with several coordinates: axial 2-D, and M-RoPE.
#ifndef LOCUS_ENCODINGS_ROPE2D_H_
#define LOCUS_ENCODINGS_ROPE2D_H_

#include <array>

#include "locus/encoding.h"

namespace locus {

// Axial 2-D: the first half of the pairs rotates by the row, the second by the
// column; each half has the frequencies of a head of head_dim / 2. Positions
// are raster indices y * width + x.
class Rope2D final : public Encoding {
 public:
  Rope2D(int64_t head_dim, PairLayout layout, int64_t width,
         double base = 10000.0);

  std::string_view Name() const override { return "rope-2d"; }
  Lowered Lower(const Shape& shape) const override;

 private:
  Rotation rotation_;
  int64_t head_dim_;
};

// How the pairs of M-RoPE are dealt to time, height and width.
enum class MRopeSections : uint8_t {
  kChunked,      // t pairs, then h, then w (Qwen2-VL)
  kInterleaved,  // t h w t h w ... while h and w have pairs left (Qwen3-VL)
};

// M-RoPE: positions are PackPosition(t, h, w).
class MRope final : public Encoding {
 public:
  // sections: pairs of time, height and width; they sum to head_dim / 2.
  MRope(int64_t head_dim, PairLayout layout, std::array<int64_t, 3> sections,
        MRopeSections dealing = MRopeSections::kChunked, double base = 1e6);

  std::string_view Name() const override { return "mrope"; }
  Lowered Lower(const Shape& shape) const override;

 private:
  Rotation rotation_;
  int64_t head_dim_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_ROPE2D_H_

// Rotary positions with several coordinates: axial 2-D, and M-RoPE.
#ifndef LOCUS_ENCODINGS_ROPE2D_H_
#define LOCUS_ENCODINGS_ROPE2D_H_

#include <array>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// The frequencies of rows and columns in axial 2-D RoPE.
enum class AxialFrequencies : uint8_t {
  kShared,       // both as for a head of head_dim / 2 (EVA-02, Qwen-VL)
  kAlternating,  // as for a head of head_dim: the even ones for rows, the odd
                 // ones for columns (Pixtral)
};

// Axial 2-D: the first half of the pairs rotates by the row, the second by the
// column. Positions are raster indices y * width + x, so that default positions
// traverse the grid row by row. Causality and windows compare raster indices.
class Rope2D final : public Encoding {
 public:
  Rope2D(int64_t head_dim, PairLayout layout, int64_t width,
         double base = 10000.0,
         AxialFrequencies frequencies = AxialFrequencies::kShared);

  std::string_view Name() const override { return "rope-2d"; }
  int64_t head_dim() const { return head_dim_; }
  PairLayout layout() const { return rotation_.layout; }
  int64_t width() const { return rotation_.axes[0].divisor; }
  double base() const { return base_; }
  AxialFrequencies frequencies() const { return frequencies_; }
  Lowered Lower(const Shape& shape) const override;

 private:
  Rotation rotation_;
  int64_t head_dim_;
  double base_;
  AxialFrequencies frequencies_;
};

// How pairs are assigned to time, height and width in M-RoPE.
enum class MRopeSections : uint8_t {
  kChunked,      // t pairs, then h, then w (Qwen2-VL)
  kInterleaved,  // t h w t h w ... while h and w have pairs left (Qwen3-VL)
};

// M-RoPE: plain positions are text and rotate as in Rope; tokens of images and
// videos have positions PackPosition(t, h, w).
class MRope final : public Encoding {
 public:
  // sections: numbers of pairs for time, height and width, with sum
  // head_dim / 2.
  MRope(int64_t head_dim, PairLayout layout, std::array<int64_t, 3> sections,
        MRopeSections dealing = MRopeSections::kChunked, double base = 1e6);

  std::string_view Name() const override { return "mrope"; }
  int64_t head_dim() const { return head_dim_; }
  PairLayout layout() const { return rotation_.layout; }
  const std::array<int64_t, 3>& sections() const { return sections_; }
  MRopeSections dealing() const { return dealing_; }
  double base() const { return base_; }
  Lowered Lower(const Shape& shape) const override;

 private:
  Rotation rotation_;
  int64_t head_dim_;
  std::array<int64_t, 3> sections_;
  MRopeSections dealing_;
  double base_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_ROPE2D_H_

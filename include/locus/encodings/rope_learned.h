// Rotary positions whose frequencies are trained: along the sequence, and over
// a 2-D grid.
#ifndef LOCUS_ENCODINGS_ROPE_LEARNED_H_
#define LOCUS_ENCODINGS_ROPE_LEARNED_H_

#include <array>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// RoPE with a trained exponent per pair: pair p rotates by m w_p exp(alpha[p]),
// w_p = base^(-2p / rotary_dim). alpha = 0 is ordinary RoPE. With alpha[h, p],
// each key head has its own frequencies.
class RopeLearned final : public Encoding {
 public:
  // alpha [rotary_dim / 2] or [key heads, rotary_dim / 2]: the first rotary_dim
  // channels of a head rotate.
  RopeLearned(Tensor alpha, PairLayout layout, double base = 10000.0);

  std::string_view Name() const override { return "rope-learned"; }
  PairLayout layout() const { return layout_; }
  double base() const { return base_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  std::vector<double> Theta() const;

  Tensor alpha_;
  PairLayout layout_;
  double base_;
};

struct RopeMixedOptions {
  // Number of tokens before the grid, such as [CLS], which are not rotated: the
  // raster begins at this position.
  int64_t prefix = 0;
  // Added to row and column: 1/2 - height / 2 centres the rows. Affects only
  // scores between the grid and the prefix.
  std::array<double, 2> offsets = {0.0, 0.0};
};

// RoPE-mixed: every pair rotates by both coordinates,
// y theta[p, 0] + x theta[p, 1], with trained theta; in the paper each head has
// its own, theta[h, p, ..]. With grouped heads that means each key head, since
// a key is rotated once for all query heads of its group. Positions are raster
// indices prefix + y * width + x, which causality and windows compare.
class RopeMixed final : public Encoding {
 public:
  // theta [rotary_dim / 2, 2], shared by the heads, or [key heads, rotary_dim /
  // 2, 2]: the first rotary_dim channels of a head rotate.
  RopeMixed(Tensor theta, PairLayout layout, int64_t width,
            RopeMixedOptions options = {});

  std::string_view Name() const override { return "rope-mixed"; }
  PairLayout layout() const { return layout_; }
  int64_t width() const { return width_; }
  const RopeMixedOptions& options() const { return options_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor theta_;
  PairLayout layout_;
  int64_t width_;
  RopeMixedOptions options_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_ROPE_LEARNED_H_

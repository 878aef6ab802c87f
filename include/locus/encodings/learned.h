// Learned absolute positions: one trained row per position.
#ifndef LOCUS_ENCODINGS_LEARNED_H_
#define LOCUS_ENCODINGS_LEARNED_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// Interpolation kernels; samples lie at half-integers (align_corners = false)
// and edges repeat, as in PyTorch. Bicubic has a = -0.75.
enum class Resample : uint8_t { kLinear, kBicubic };

class Learned final : public Encoding {
 public:
  // table [L, model_dim]; position p uses row p + offset (OPT and BART: 2,
  // RoBERTa: padding_idx + 1). A position without a row is an error.
  explicit Learned(Tensor table, int64_t offset = 0);

  std::string_view Name() const override { return "learned"; }
  int64_t offset() const { return offset_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

  // Resamples the table to `length` rows. Rows before the offset are kept
  // unchanged.
  Learned Resized(int64_t length, Resample kernel) const;

  struct Grid2D {
    int64_t height = 0;
    int64_t width = 0;
  };
  // The same for a grid of height x width rows after `prefix` rows, such as a
  // [CLS] row, which are kept unchanged. Grids need not be square.
  Learned Resized2D(Grid2D from, Grid2D to, Resample kernel,
                    int64_t prefix = 0) const;

 private:
  Tensor table_;
  int64_t offset_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_LEARNED_H_

// Relative positions as vectors added to keys and values.
#ifndef LOCUS_ENCODINGS_SHAW_H_
#define LOCUS_ENCODINGS_SHAW_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class Shaw final : public Encoding {
 public:
  // keys and values: [r_max - r_min + 1, D] shared by the heads, or
  // [heads, r_max - r_min + 1, D]; either may be absent. Offset m - n uses row
  // clip(m - n, r_min, r_max) - r_min.
  Shaw(Tensor keys, Tensor values, int64_t r_min, int64_t r_max);

  std::string_view Name() const override { return "shaw"; }
  int64_t r_min() const { return r_min_; }
  int64_t r_max() const { return r_max_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor keys_;
  Tensor values_;
  int64_t r_min_;
  int64_t r_max_;
};

// The key-offset form f_k(x_n, n) = W_K x_n + p_(m-n): Shaw's keys without
// clipping. rows [2M - 1, D] or [heads, 2M - 1, D], row (m - n) + M - 1.
class KeyOffset final : public Encoding {
 public:
  explicit KeyOffset(Tensor rows);

  std::string_view Name() const override { return "key-offset"; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor rows_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_SHAW_H_

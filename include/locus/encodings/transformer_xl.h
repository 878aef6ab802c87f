// Transformer-XL: content and position biases against relative keys.
#ifndef LOCUS_ENCODINGS_TRANSFORMER_XL_H_
#define LOCUS_ENCODINGS_TRANSFORMER_XL_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class TransformerXL final : public Encoding {
 public:
  // r [heads, 2M - 1, D]: relative keys, row (m - n) + M - 1; u, v [heads, D].
  TransformerXL(Tensor r, Tensor u, Tensor v);

  // Relative keys from sinusoids: W_r s_(m-n), with s the sinusoid of the
  // offset ([sin, cos] halves, base 10000) and w_r [heads, D, model_dim].
  static Tensor SinusoidalKeys(const Tensor& w_r, int64_t reach);

  std::string_view Name() const override { return "transformer-xl"; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor r_, u_, v_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_TRANSFORMER_XL_H_

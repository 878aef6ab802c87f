// KERPLE: biases from conditionally positive definite kernels.
#ifndef LOCUS_ENCODINGS_KERPLE_H_
#define LOCUS_ENCODINGS_KERPLE_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

enum class KerpleKind : uint8_t { kLogarithmic, kPower };

class Kerple final : public Encoding {
 public:
  // r1, r2 [heads], positive; for the power kernel r2 <= 2.
  Kerple(KerpleKind kind, Tensor r1, Tensor r2);

  std::string_view Name() const override { return "kerple"; }
  KerpleKind kind() const { return kind_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  KerpleKind kind_;
  Tensor r1_, r2_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_KERPLE_H_

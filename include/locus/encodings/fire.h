// FIRE: a learned function of the distance, progressively interpolated.
#ifndef LOCUS_ENCODINGS_FIRE_H_
#define LOCUS_ENCODINGS_FIRE_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// Parameters of f(x) = W2 relu(w1 x + b1) + b2 and of the transform
// psi(x) = ln(|c x| + 1), with threshold L.
struct FireParams {
  Tensor w1 = {};         // [width]
  Tensor b1 = {};         // [width]
  Tensor w2 = {};         // [heads, width]
  Tensor b2 = {};         // [heads]
  Tensor c = {};          // [1]
  Tensor threshold = {};  // [1]: L; below it, distances are divided by psi(L)
};

class Fire final : public Encoding {
 public:
  explicit Fire(FireParams params, double epsilon = 1e-6);

  std::string_view Name() const override { return "fire"; }
  double epsilon() const { return epsilon_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  FireParams params_;
  double epsilon_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_FIRE_H_

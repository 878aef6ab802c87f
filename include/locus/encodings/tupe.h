// TUPE: separate (untied) scores of content and of absolute position.
#ifndef LOCUS_ENCODINGS_TUPE_H_
#define LOCUS_ENCODINGS_TUPE_H_

#include <optional>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

struct TupeOptions {
  // Relative bias [heads, buckets]; absent: TUPE-A.
  Tensor bias = {};
  // Maps offsets to buckets; absent: one bucket per offset -M + 1 .. M - 1 for
  // a table of 2M - 1.
  std::optional<BucketMap> buckets = {};
  // Untied [CLS]: position scores of cls_position are replaced by
  // cls [heads, 2]: theta_1 where it attends, theta_2 where it is attended to.
  Tensor cls = {};
  int64_t cls_position = 0;
};

class Tupe final : public Encoding {
 public:
  // q_pos = p U_q and k_pos = p U_k: [heads, L, E], row = position.
  Tupe(Tensor q_pos, Tensor k_pos, TupeOptions options = {});

  std::string_view Name() const override { return "tupe"; }
  const TupeOptions& options() const { return options_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor q_pos_, k_pos_;
  TupeOptions options_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_TUPE_H_

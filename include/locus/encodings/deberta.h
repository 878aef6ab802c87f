// DeBERTa: content-to-position and position-to-content scores.
#ifndef LOCUS_ENCODINGS_DEBERTA_H_
#define LOCUS_ENCODINGS_DEBERTA_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class Deberta final : public Encoding {
 public:
  // c2p: projected position keys, p2c: projected position queries, each
  // [heads, 2 * span, D] or absent. span = position_buckets, or
  // max_relative_positions if position_buckets is 0 (v1: no logarithm).
  Deberta(Tensor c2p, Tensor p2c, int64_t position_buckets,
          int64_t max_relative_positions);

  std::string_view Name() const override { return "deberta"; }
  int64_t position_buckets() const { return position_buckets_; }
  int64_t max_relative_positions() const { return max_relative_positions_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor c2p_, p2c_;
  int64_t position_buckets_;
  int64_t max_relative_positions_;
  BucketMap buckets_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_DEBERTA_H_

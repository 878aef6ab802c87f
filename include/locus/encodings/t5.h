// T5: one scalar bias per head and offset bucket.
#ifndef LOCUS_ENCODINGS_T5_H_
#define LOCUS_ENCODINGS_T5_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class T5Bias final : public Encoding {
 public:
  // table [buckets, heads], as checkpoints store it.
  explicit T5Bias(Tensor table, int64_t max_distance = 128,
                  bool bidirectional = false);

  std::string_view Name() const override { return "t5"; }
  int64_t max_distance() const { return max_distance_; }
  bool bidirectional() const { return bidirectional_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor table_;
  int64_t max_distance_;
  bool bidirectional_;
  BucketMap buckets_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_T5_H_

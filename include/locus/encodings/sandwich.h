// Sandwich: the inner product of sinusoids as a bias.
#ifndef LOCUS_ENCODINGS_SANDWICH_H_
#define LOCUS_ENCODINGS_SANDWICH_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class Sandwich final : public Encoding {
 public:
  // `dim` is the width of the sinusoids, 128 in the paper.
  explicit Sandwich(int64_t heads, int64_t dim = 128, double base = 10000.0);

  std::string_view Name() const override { return "sandwich"; }
  int64_t heads() const { return heads_; }
  int64_t dim() const { return dim_; }
  double base() const { return base_; }
  Lowered Lower(const Shape& shape) const override;

 private:
  int64_t heads_;
  int64_t dim_;
  double base_;
  std::vector<double> frequencies_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_SANDWICH_H_

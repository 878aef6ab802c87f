// ALiBi: a linear penalty on distance, one slope per head.
#ifndef LOCUS_ENCODINGS_ALIBI_H_
#define LOCUS_ENCODINGS_ALIBI_H_

#include <vector>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

struct AlibiOptions {
  double bias_max = 8.0;
  // Slopes [heads] that replace the geometric ones; empty: geometric.
  std::vector<double> slopes = {};
  // Slopes towards later keys; empty: the same (symmetric). Causal calls do not
  // use them.
  std::vector<double> future_slopes = {};
};

class Alibi final : public Encoding {
 public:
  explicit Alibi(int64_t heads, AlibiOptions options = {});

  // 2^(-bias_max * j / n), j = 1 .. n, if n is a power of two; otherwise the
  // slopes of the next lower power of two, then every other slope of the next
  // higher one.
  static std::vector<double> Slopes(int64_t heads, double bias_max = 8.0);

  std::string_view Name() const override { return "alibi"; }
  // Slopes towards earlier and later keys, [heads] each.
  const BiasRamp& ramp() const { return ramp_; }
  Lowered Lower(const Shape& shape) const override;

 private:
  BiasRamp ramp_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_ALIBI_H_

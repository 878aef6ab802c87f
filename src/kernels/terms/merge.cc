// Partial softmaxes put together.
//
//   lse = log(e^lse_a + e^lse_b),   out = e^(lse_a - lse) a + e^(lse_b - lse) b
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "kernels/plan/call.h"
#include "locus/attention.h"

namespace locus {

AttentionResult Merge(const AttentionResult& a, const AttentionResult& b) {
  const Tensor& x = a.out;
  if (x.rank() != 4 || b.out.shape() != x.shape() ||
      b.out.dtype() != x.dtype()) {
    Fail("results to merge must be alike, got {} and {}", x.Describe(),
         b.out.Describe());
  }
  const std::vector<int64_t> rows_shape = {x.size(0), x.size(1), x.size(2)};
  if (a.lse.shape() != rows_shape || b.lse.shape() != rows_shape) {
    Fail("results to merge need lse [{}], got {} and {}",
         fmt::join(rows_shape, ", "), a.lse.Describe(), b.lse.Describe());
  }
  AttentionResult merged{.out = Tensor::Zeros(x.dtype(), x.shape()),
                         .lse = Tensor::Zeros(DType::kF32, rows_shape)};
  const kernels::Rows rows_a(x), rows_b(b.out);
  const int64_t dim = x.size(3);
  std::vector<float> from_a(static_cast<size_t>(dim)), from_b(from_a);
  float* lse = merged.lse.MutableData<float>();
  int64_t row = 0;
  for (int64_t batch = 0; batch < x.size(0); ++batch) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t i = 0; i < x.size(2); ++i, ++row) {
        const double la = a.lse.At(batch, h, i), lb = b.lse.At(batch, h, i);
        const double max = std::max(la, lb);
        if (max == -std::numeric_limits<double>::infinity()) {
          lse[row] = static_cast<float>(max);  // neither saw a key: zeros
          continue;
        }
        const double wa = std::exp(la - max), wb = std::exp(lb - max);
        rows_a.Load(batch, h, i, from_a.data());
        rows_b.Load(batch, h, i, from_b.data());
        const float share_a = static_cast<float>(wa / (wa + wb));
        const float share_b = static_cast<float>(wb / (wa + wb));
        for (size_t d = 0; d < from_a.size(); ++d) {
          from_a[d] = share_a * from_a[d] + share_b * from_b[d];
        }
        kernels::StoreRow(merged.out, row, from_a.data(), dim);
        lse[row] = static_cast<float>(max + std::log(wa + wb));
      }
    }
  }
  return merged;
}

}  // namespace locus

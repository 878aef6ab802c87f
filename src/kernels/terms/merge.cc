// Merging partial softmax results:
//
//   lse = log(e^lse_a + e^lse_b),   out = e^(lse_a - lse) a + e^(lse_b - lse) b
//
// The two factors of a row are computed in float64, its elements with SIMD.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/buffer.h"
#include "core/fail.h"
#include "core/threads.h"
#include "kernels/simd/rows.h"
#include "locus/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/terms/merge.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// out = share_a a + share_b b, each [dim]; out may be a or b.
template <typename T>
HWY_INLINE void MixRow(const T* a, const T* b, float share_a, float share_b,
                       int64_t dim, T* out) {
  const auto mix = [=](auto d, int64_t n) HWY_ATTR {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto wa = hn::Set(d, share_a), wb = hn::Set(d, share_b);
    for (; n + lanes <= dim; n += lanes) {
      const auto first = hn::Mul(wa, Promote(d, a + n));
      Demote(d, hn::MulAdd(wb, Promote(d, b + n), first), out + n);
    }
    return n;
  };
  mix(hn::CappedTag<float, 1>(), mix(hn::ScalableTag<float>(), 0));
}

void MixAny(DType dtype, const void* a, const void* b, float share_a,
            float share_b, int64_t dim, void* out) {
  WithType(dtype, [&]<typename T>() {
    MixRow(static_cast<const T*>(a), static_cast<const T*>(b), share_a, share_b,
           dim, static_cast<T*>(out));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(MixAny);

AttentionResult Merge(const AttentionResult& a, const AttentionResult& b,
                      int threads) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const Tensor& x = a.out;
  if (x.rank() != 4 || b.out.shape() != x.shape() ||
      b.out.dtype() != x.dtype()) {
    Fail("results to merge must be alike, got {} and {}", x.Describe(),
         b.out.Describe());
  }
  if (x.dtype() == DType::kI8) {
    Fail("results to merge must be floating-point, got {}", x.Describe());
  }
  const int64_t heads = x.size(1), length = x.size(2), dim = x.size(3);
  const std::vector<int64_t> rows_shape = {x.size(0), heads, length};
  if (a.lse.shape() != rows_shape || b.lse.shape() != rows_shape) {
    Fail("results to merge need lse [{}], got {} and {}",
         fmt::join(rows_shape, ", "), a.lse.Describe(), b.lse.Describe());
  }
  AttentionResult merged{.out = Tensor::Empty(x.dtype(), x.shape()),
                         .lse = Tensor::Empty(DType::kF32, rows_shape)};
  float* lse = merged.lse.MutableData<float>();
  const kernels::Rows rows_a(x), rows_b(b.out);
  const bool adjacent =
      x.dtype() != DType::kF64 && rows_a.unit_stride() && rows_b.unit_stride();
  const int64_t rows = merged.lse.NumElements();
  // Rows per task: 64 KiB of floats, far more work than scheduling a task.
  const int64_t step = std::max<int64_t>(16384 / std::max<int64_t>(dim, 1), 1);
  const int64_t tasks = (rows + step - 1) / step;
  FloatBuffer scratch(adjacent ? 0 : tasks * 2 * dim);
  const auto merge_row = [&](int64_t row, int64_t batch, int64_t h, int64_t i,
                             float* staged) {
    void* out = kernels::ElementAt(merged.out, row * dim);
    const double la = a.lse.At(batch, h, i), lb = b.lse.At(batch, h, i);
    if (la == kNothing && lb == kNothing) {  // neither saw a key: zeros
      std::memset(out, 0, static_cast<size_t>(dim * DTypeBytes(x.dtype())));
      lse[row] = static_cast<float>(kNothing);
      return;
    }
    // The larger share is 1 / (1 + e), the other e / (1 + e).
    const bool a_leads = la >= lb;
    const double e = std::exp(a_leads ? lb - la : la - lb);
    const float large = static_cast<float>(1.0 / (1.0 + e));
    const float small = static_cast<float>(e / (1.0 + e));
    lse[row] = static_cast<float>((a_leads ? la : lb) + std::log1p(e));
    const void* of_a = rows_a.Row(batch, h, i);
    const void* of_b = rows_b.Row(batch, h, i);
    if (!adjacent) {
      rows_a.Load(batch, h, i, staged);
      rows_b.Load(batch, h, i, staged + dim);
      of_a = staged;
      of_b = staged + dim;
    }
    HWY_DYNAMIC_DISPATCH(MixAny)
    (adjacent ? x.dtype() : DType::kF32, of_a, of_b, a_leads ? large : small,
     a_leads ? small : large, dim, adjacent ? out : staged);
    if (!adjacent) kernels::StoreFloats(staged, dim, x.dtype(), out);
  };
  ParallelFor(tasks, kernels::ThreadsForElements(rows * dim, threads),
              [&](int64_t task) noexcept {
                float* staged =
                    scratch.data() + (adjacent ? 0 : task * 2 * dim);
                const int64_t first = task * step;
                const int64_t end = std::min(first + step, rows);
                int64_t i = first % length, h = first / length % heads;
                int64_t batch = first / (length * heads);
                for (int64_t row = first; row < end; ++row) {
                  merge_row(row, batch, h, i, staged);
                  if (++i < length) continue;
                  i = 0;
                  if (++h < heads) continue;
                  h = 0;
                  ++batch;
                }
              });
  return merged;
}

// Merges with a result whose lse is the sink and whose values are zero.
AttentionResult AddSinks(const AttentionResult& result, const Tensor& sinks,
                         int threads) {
  const Tensor& out = result.out;
  if (out.rank() != 4 || sinks.rank() != 1 || sinks.size(0) != out.size(1)) {
    Fail("sinks must have one logit for each head of {}, got {}",
         out.Describe(), sinks.Describe());
  }
  const Tensor zeros = Tensor::Zeros(out.dtype(), {out.size(3)});
  return Merge(result,
               {.out = Tensor::Borrow(out.dtype(), out.shape(), {0, 0, 0, 1},
                                      zeros.Raw()),
                .lse = Tensor::Borrow(sinks.dtype(),
                                      {out.size(0), out.size(1), out.size(2)},
                                      {0, sinks.strides()[0], 0}, sinks.Raw())},
               threads);
}

}  // namespace locus
#endif

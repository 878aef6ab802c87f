#include "kernels/plan/run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/backward/backward.h"
#include "kernels/plan/drivers.h"
#include "kernels/plan/verbose.h"

namespace locus::kernels {
namespace {

// "f32 [2, 8, 512, 64]", "f32 [...] with strides [...]" or "nothing".
std::string DescribeLayout(const Tensor& t) {
  if (!t.defined()) return "nothing";
  if (t.IsContiguous()) return t.Describe();
  return fmt::format("{} with strides [{}]", t.Describe(),
                     fmt::join(t.strides(), ", "));
}

// Whether a tensor has this type and these sizes.
bool Fits(const Tensor& t, DType dtype, std::span<const int64_t> sizes) {
  return t.defined() && t.dtype() == dtype &&
         std::ranges::equal(t.shape(), sizes);
}

// Whether rows are contiguous and no two elements share memory: each axis steps
// over all that the axes of smaller steps reach.
bool HasOwnRows(const Tensor& t) {
  if (t.IsContiguous() || t.NumElements() == 0) return true;
  if (t.shape()[3] > 1 && t.strides()[3] != 1) return false;
  std::array<std::pair<int64_t, int64_t>, 3> axes;  // step, size
  for (size_t axis = 0; axis < 3; ++axis) {
    axes[axis] = {t.strides()[axis], t.shape()[axis]};
  }
  std::ranges::sort(axes);
  int64_t reach = t.shape()[3];
  for (const auto& [step, size] : axes) {
    if (size == 1) continue;
    if (step < reach) return false;
    reach += (size - 1) * step;
  }
  return true;
}

// A tensor of the caller that a result is written to.
void CheckOutput(const char* name, const Tensor& t, DType dtype,
                 std::span<const int64_t> sizes) {
  if (Fits(t, dtype, sizes) && HasOwnRows(t)) return;
  Fail("{} must be {} [{}] with contiguous rows that share no memory, got {}",
       name, DTypeName(dtype), fmt::join(sizes, ", "), DescribeLayout(t));
}

// Whether the bytes from the first to the last element of both overlap.
bool Overlaps(const Tensor& a, const Tensor& b) {
  if (a.NumElements() == 0 || b.NumElements() == 0) return false;
  const auto span = [](const Tensor& t) {
    const int64_t bytes = DTypeBytes(t.dtype());
    const auto* first = static_cast<const char*>(t.Raw());
    const char* end = first + bytes;
    for (size_t axis = 0; axis < t.shape().size(); ++axis) {
      const int64_t reach = (t.shape()[axis] - 1) * t.strides()[axis] * bytes;
      (reach < 0 ? first : end) += reach;
    }
    return std::pair(first, end);
  };
  const auto [a_first, a_end] = span(a);
  const auto [b_first, b_end] = span(b);
  return std::less<>()(a_first, b_end) && std::less<>()(b_first, a_end);
}

void CheckResult(const AttentionResult& result, const Plan& plan,
                 const Tensor& q, const Tensor& k, const Tensor& v) {
  const CallSizes& s = plan.sizes;
  const int64_t sizes[] = {s.batch, s.q_heads, s.q_len, s.value_dim};
  const std::span rows(sizes, 3);
  CheckOutput("result.out", result.out, q.dtype(), sizes);
  if (plan.options.return_lse &&
      !(Fits(result.lse, DType::kF32, rows) && result.lse.IsContiguous())) {
    Fail("result.lse must be contiguous f32 [{}], got {}",
         fmt::join(rows, ", "), DescribeLayout(result.lse));
  }
  const int64_t pairs[] = {s.batch, s.q_heads, s.q_len, s.k_len};
  if (plan.options.return_weights &&
      !(Fits(result.weights, DType::kF32, pairs) &&
        result.weights.IsContiguous())) {
    Fail("result.weights must be contiguous f32 [{}], got {}",
         fmt::join(pairs, ", "), DescribeLayout(result.weights));
  }
  for (const Tensor* in : {&q, &k, &v}) {
    if (Overlaps(result.out, *in)) {
      Fail("result.out shares memory with {}", in == &q   ? "q"
                                               : in == &k ? "k"
                                                          : "v");
    }
  }
}

// Sets every row of a tensor to zeros.
void ClearRows(Tensor& t) {
  if (t.NumElements() == 0) return;
  const auto bytes = static_cast<size_t>(t.shape()[3] * DTypeBytes(t.dtype()));
  for (int64_t b = 0; b < t.shape()[0]; ++b) {
    for (int64_t h = 0; h < t.shape()[1]; ++h) {
      for (int64_t i = 0; i < t.shape()[2]; ++i) {
        std::memset(RowOf(t, b, h, i), 0, bytes);
      }
    }
  }
}

// As Tensor::Empty, but with a single allocation by plain operator new, which
// is faster than an aligned one: that shows in short calls. `strides` are those
// of a contiguous tensor.
Tensor NewSmall(DType dtype, int64_t elements, std::vector<int64_t> shape,
                std::vector<int64_t> strides) {
  constexpr size_t kLine = 64;  // alignment
  const int64_t bytes = elements * DTypeBytes(dtype);
  auto storage = std::make_shared_for_overwrite<std::byte[]>(
      static_cast<size_t>(bytes) + kLine);
  const auto at = reinterpret_cast<uintptr_t>(storage.get());
  const void* data = storage.get() + (kLine - at % kLine);
  return Tensor::Borrow(dtype, std::move(shape), std::move(strides), data,
                        std::move(storage));
}

// Uninitialised tensors for the result of a call; lse only with return_lse.
AttentionResult NewResult(const Plan& plan) {
  const CallSizes& s = plan.sizes;
  const bool with_lse = plan.options.return_lse;
  // 64 KiB of floats. A double, since the product of the sizes may overflow.
  constexpr double kSmall = 16384.0;
  const double elements =
      static_cast<double>(s.batch) * static_cast<double>(s.q_heads) *
      static_cast<double>(s.q_len) * static_cast<double>(s.value_dim);
  if (elements > kSmall || elements == 0.0) {
    return {.out = Tensor::Empty(plan.dtype,
                                 {s.batch, s.q_heads, s.q_len, s.value_dim}),
            .lse = with_lse ? Tensor::Empty(DType::kF32,
                                            {s.batch, s.q_heads, s.q_len})
                            : Tensor()};
  }
  const int64_t head = s.q_len * s.value_dim;
  const int64_t rows = s.batch * s.q_heads * s.q_len;
  AttentionResult small{.out =
                            NewSmall(plan.dtype, rows * s.value_dim,
                                     {s.batch, s.q_heads, s.q_len, s.value_dim},
                                     {s.q_heads * head, head, s.value_dim, 1})};
  if (with_lse) {
    small.lse = NewSmall(DType::kF32, rows, {s.batch, s.q_heads, s.q_len},
                         {s.q_heads * s.q_len, s.q_len, 1});
  }
  return small;
}

// Runs the driver; `result` has been checked or allocated.
void RunDriver(const Plan& plan, const Rows& q, const Rows& k, const Rows& v,
               AttentionResult& result) {
  const VerboseCall verbose(plan);
  CallResult to{.out = result.out};
  if (plan.options.return_lse) to.lse = result.lse.MutableData<float>();
  if (plan.options.return_weights) {
    to.weights = result.weights.MutableData<float>();
  }
  plan.driver->run(Call(plan, q, k, v), to);
}

bool HasMinusInf(const Tensor& lse) {
  const std::span<const float> all(lse.Data<float>(),
                                   static_cast<size_t>(lse.NumElements()));
  return std::ranges::find(all, -std::numeric_limits<float>::infinity()) !=
         all.end();
}

// A tensor for the gradient of the pair bias, f32: uninitialised if every
// element will be stored by exactly one task, else zeros, written by all
// threads since page faults take most of the time. Rows whose lse is -inf see
// no key, whatever hides them, and are not stored.
Tensor PairGrads(const Plan& plan, const Tensor& lse) {
  const AttentionOptions& o = plan.options;
  const CallSizes& s = plan.sizes;
  constexpr int64_t kFloats = int64_t{1} << 18;  // per task, 1 MiB
  Tensor pairs = Tensor::Empty(DType::kF32, o.pair_bias.shape());
  const bool sees_all = !o.causal && !o.window && !o.chunk &&
                        o.q_segments.empty() && o.key_lengths.empty() &&
                        !o.mask.defined() && !HasMinusInf(lse);
  if (sees_all && pairs.shape() == std::vector<int64_t>{s.batch, s.q_heads,
                                                        s.q_len, s.k_len}) {
    return pairs;
  }
  float* data = pairs.MutableData<float>();
  const int64_t count = pairs.NumElements();
  const auto clear = [&](int64_t task, int /*worker*/) noexcept {
    const int64_t begin = task * kFloats;
    std::fill_n(data + begin, std::min(kFloats, count - begin), 0.0F);
  };
  ParallelFor((count + kFloats - 1) / kFloats, plan.threads, clear);
  return pairs;
}

}  // namespace

AttentionResult Run(const Plan& plan, const Rows& q, const Rows& k,
                    const Rows& v) {
  AttentionResult result = NewResult(plan);
  if (plan.options.return_weights) {
    const CallSizes& s = plan.sizes;
    result.weights =
        Tensor::Empty(DType::kF32, {s.batch, s.q_heads, s.q_len, s.k_len});
  }
  RunDriver(plan, q, k, v, result);
  return result;
}

void RunInto(const Plan& plan, const Tensor& q, const Tensor& k,
             const Tensor& v, AttentionResult& result) {
  CheckResult(result, plan, q, k, v);
  RunDriver(plan, Rows(q), Rows(k), Rows(v), result);
}

AttentionGrads RunBackward(const Plan& plan, const Tensor& d_out,
                           const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionResult& forward,
                           const BackwardOptions& backward) {
  const CallSizes& s = plan.sizes;
  CheckBackward(s, plan.options, backward);
  const std::vector<int64_t> out_shape = {s.batch, s.q_heads, s.q_len,
                                          s.value_dim};
  if (d_out.shape() != out_shape || forward.out.shape() != out_shape) {
    Fail("d_out and out must be [{}], got {} and {}",
         fmt::join(out_shape, ", "), d_out.Describe(), forward.out.Describe());
  }
  if (forward.lse.shape() !=
          std::vector<int64_t>{s.batch, s.q_heads, s.q_len} ||
      forward.lse.dtype() != DType::kF32) {
    Fail("lse must be f32 [{}, {}, {}], got {}", s.batch, s.q_heads, s.q_len,
         forward.lse.Describe());
  }
  const VerboseCall verbose(plan);
  const Tensor lse = forward.lse.To(DType::kF32);
  // Kernels write every row unless there are no pairs, or key_lengths cut off
  // some keys.
  const bool all =
      plan.options.key_lengths.empty() && s.q_len > 0 && s.k_len > 0;
  const auto grad = [&](const char* name, const Tensor& given,
                        const Tensor& of) {
    if (!given.defined()) {
      return all ? Tensor::Empty(of.dtype(), of.shape())
                 : Tensor::Zeros(of.dtype(), of.shape());
    }
    CheckOutput(name, given, of.dtype(), of.shape());
    Tensor to = given;
    if (!all) ClearRows(to);
    return to;
  };
  AttentionGrads grads{.d_q = grad("d_q", backward.d_q, q),
                       .d_k = grad("d_k", backward.d_k, k),
                       .d_v = grad("d_v", backward.d_v, v),
                       .operands = ZeroOperandGrads(plan.options, {}),
                       .terms = ZeroGrads(plan.terms)};
  // This gradient is stored once rather than accumulated, so f32 suffices.
  if (grads.operands.table_queries.defined()) {
    grads.operands.table_queries =
        Tensor::Zeros(DType::kF32, plan.options.table_queries.shape());
  }
  if (backward.pair_bias) {
    grads.operands.pair_bias = PairGrads(plan, lse);
  }
  const Tensor d_lse =
      backward.d_lse.defined() ? backward.d_lse.To(DType::kF32) : Tensor();
  const Call call(plan, Rows(q), Rows(k), Rows(v));
  Backward({.call = call,
            .d_out = Rows(d_out),
            .out = Rows(forward.out),
            .lse = lse.Data<float>(),
            .d_lse = d_lse.defined() ? d_lse.Data<float>() : nullptr,
            .d_q = &grads.d_q,
            .d_k = &grads.d_k,
            .d_v = &grads.d_v,
            .grads = &grads.terms,
            .operands = &grads.operands});
  // Sums are float64; results have the types of the operands.
  const auto demote = [](Tensor& grad, const Tensor& operand) {
    if (grad.defined()) grad = grad.To(operand.dtype());
  };
  demote(grads.operands.key_bias, plan.options.key_bias);
  demote(grads.operands.pair_bias, plan.options.pair_bias);
  demote(grads.operands.sinks, plan.options.sinks);
  demote(grads.operands.table_queries, plan.options.table_queries);
  return grads;
}

}  // namespace locus::kernels

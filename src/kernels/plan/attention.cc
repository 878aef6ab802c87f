// The public face of the kernels: checks a call and hands it over.
#include "locus/attention.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "core/fail.h"
#include "kernels/backward/backward.h"
#include "kernels/decode/decode.h"
#include "kernels/forward/forward.h"
#include "kernels/plan/call.h"
#include "kernels/short/short.h"
#include "locus/encoding.h"

namespace locus {
namespace {

void CheckTypes(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.dtype() == DType::kF64 || q.dtype() != k.dtype() ||
      q.dtype() != v.dtype()) {
    Fail("q, k and v must be all f32, all bf16 or all f16, got {}, {} and {}",
         q.Describe(), k.Describe(), v.Describe());
  }
}

// "f32 [2, 8, 512, 64]", "f32 [...] with strides [...]" or "nothing".
std::string Told(const Tensor& t) {
  if (!t.defined()) return "nothing";
  if (t.IsContiguous()) return t.Describe();
  return fmt::format("{} with strides [{}]", t.Describe(),
                     fmt::join(t.strides(), ", "));
}

// Whether a tensor is contiguous, of this type and these sizes.
bool Fits(const Tensor& t, DType dtype, std::span<const int64_t> sizes) {
  if (!t.defined() || t.dtype() != dtype || t.shape().size() != sizes.size()) {
    return false;
  }
  int64_t stride = 1;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    if (t.shape()[axis] != sizes[axis]) return false;
    if (sizes[axis] > 1 && t.strides()[axis] != stride) return false;
    stride *= sizes[axis];
  }
  return true;
}

// Whether [begin, end) meets the bytes from the first element to the last.
bool Meets(const char* begin, const char* end, const Tensor& t) {
  const int64_t bytes = DTypeBytes(t.dtype());
  const auto* first = static_cast<const char*>(t.Raw());
  const char* last = first + bytes;
  for (size_t axis = 0; axis < t.shape().size(); ++axis) {
    if (t.shape()[axis] == 0) return false;
    const int64_t reach = (t.shape()[axis] - 1) * t.strides()[axis] * bytes;
    (reach < 0 ? first : last) += reach;
  }
  return std::less<>()(begin, last) && std::less<>()(first, end);
}

void CheckResult(const AttentionResult& result, const CallSizes& s,
                 const Tensor& q, const Tensor& k, const Tensor& v,
                 bool with_lse) {
  const int64_t sizes[] = {s.batch, s.q_heads, s.q_len, s.value_dim};
  const std::span rows(sizes, 3);
  if (!Fits(result.out, q.dtype(), sizes)) {
    Fail("result.out must be contiguous {} [{}], got {}", DTypeName(q.dtype()),
         fmt::join(sizes, ", "), Told(result.out));
  }
  if (with_lse && !Fits(result.lse, DType::kF32, rows)) {
    Fail("result.lse must be contiguous f32 [{}], got {}",
         fmt::join(rows, ", "), Told(result.lse));
  }
  const auto* begin = static_cast<const char*>(result.out.Raw());
  const char* end = begin + s.batch * s.q_heads * s.q_len * s.value_dim *
                                DTypeBytes(q.dtype());
  for (const Tensor* in : {&q, &k, &v}) {
    if (begin < end && Meets(begin, end, *in)) {
      Fail("result.out shares memory with {}", in == &q   ? "q"
                                               : in == &k ? "k"
                                                          : "v");
    }
  }
}

// Attends into a result that fits; sizes and types are checked.
void Attend(const CallSizes& s, const Tensor& q, const Tensor& k,
            const Tensor& v, const Terms& terms,
            const AttentionOptions& options, AttentionResult& result) {
  const int threads = kernels::ThreadsFor(s, options.threads);
  float* lse = options.return_lse ? result.lse.MutableData<float>() : nullptr;
  if (kernels::IsShort(s, terms, options)) {
    const kernels::ShortCall call(s, q, k, v, terms, options);
    kernels::Short(call, result.out, lse, threads);
    return;
  }
  const kernels::Call call(q, k, v, terms, options);
  if (kernels::FewRows(s, terms) ||
      (s.k_len > 0 && kernels::TablesByPair(terms))) {
    kernels::Decode(call, result.out, lse, threads);
  } else {
    kernels::Forward(call, result.out, lse, threads);
  }
}

}  // namespace

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Terms& terms, const AttentionOptions& options) {
  const CallSizes s = CheckCall(q, k, v, options);
  CheckTypes(q, k, v);
  AttentionResult result = kernels::NewResult(s, q.dtype(), options.return_lse);
  Attend(s, q, k, v, terms, options, result);
  return result;
}

void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Terms& terms, const AttentionOptions& options,
                   AttentionResult& result) {
  const CallSizes s = CheckCall(q, k, v, options);
  CheckTypes(q, k, v);
  CheckResult(result, s, q, k, v, options.return_lse);
  Attend(s, q, k, v, terms, options, result);
}

AttentionGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                 const Tensor& k, const Tensor& v,
                                 const AttentionResult& forward,
                                 const Terms& terms,
                                 const AttentionOptions& options) {
  const kernels::Call call(q, k, v, terms, options);
  CheckTypes(q, k, v);
  if (kernels::TablesByPair(terms)) {
    Fail(
        "there is no backward pass through a table over a 2-D window or with a "
        "token apart; a bias may have both");
  }
  const CallSizes& s = call.sizes;
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
  const Tensor lse = forward.lse.To(DType::kF32);
  // Every row is written, unless there are no pairs or keys are cut off.
  const bool all = options.key_lengths.empty() && s.q_len > 0 && s.k_len > 0;
  const auto like = [all](const Tensor& t) {
    return all ? Tensor::Empty(t.dtype(), t.shape())
               : Tensor::Zeros(t.dtype(), t.shape());
  };
  AttentionGrads grads{.d_q = like(q),
                       .d_k = like(k),
                       .d_v = like(v),
                       .terms = ZeroGrads(terms)};
  const kernels::BackwardCall args{
      .call = call,
      .d_out = kernels::Rows(d_out),
      .out = kernels::Rows(forward.out),
      .lse = lse.Data<float>(),
      .d_q = &grads.d_q,
      .d_k = &grads.d_k,
      .d_v = &grads.d_v,
      .want_terms = terms.extra_dot || terms.q_table || terms.k_table ||
                    terms.v_table || terms.bias,
      .grads = &grads.terms};
  kernels::Backward(args, kernels::ThreadsFor(s, options.threads));
  return grads;
}

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Encoding& encoding,
                          const AttentionOptions& options) {
  const CallSizes sizes = CheckCall(q, k, v, options);
  const Shape shape = CallMask(sizes, options).ShapeOf(sizes, options);
  return Attention(q, k, v, encoding.Lower(shape).terms, options);
}

EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const AttentionResult& forward,
                                const Encoding& encoding,
                                const AttentionOptions& options) {
  const CallSizes sizes = CheckCall(q, k, v, options);
  const Shape shape = CallMask(sizes, options).ShapeOf(sizes, options);
  const AttentionGrads grads = AttentionBackward(
      d_out, q, k, v, forward, encoding.Lower(shape).terms, options);
  return {.d_q = grads.d_q,
          .d_k = grads.d_k,
          .d_v = grads.d_v,
          .params = encoding.PullBack(shape, grads.terms)};
}

}  // namespace locus

// The public face of the kernels: checks a call and hands it over.
#include "locus/attention.h"

#include "core/fail.h"
#include "kernels/attention_kernels.h"
#include "kernels/call.h"
#include "kernels/decode.h"
#include "kernels/short.h"
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

}  // namespace

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Terms& terms, const AttentionOptions& options) {
  const CallSizes s = CheckCall(q, k, v, options);
  CheckTypes(q, k, v);
  const int threads = kernels::ThreadsFor(s, options.threads);
  AttentionResult result = kernels::NewResult(s, q.dtype(), options.return_lse);
  float* lse = options.return_lse ? result.lse.MutableData<float>() : nullptr;
  if (kernels::IsShort(s, terms, options)) {
    const kernels::ShortCall call(s, q, k, v, terms, options);
    kernels::Short(call, result.out, lse, threads);
    return result;
  }
  const kernels::Call call(q, k, v, terms, options);
  if (kernels::FewRows(s, terms)) {
    kernels::Decode(call, result.out, lse, threads);
  } else {
    kernels::Forward(call, result.out, lse, threads);
  }
  return result;
}

AttentionGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                 const Tensor& k, const Tensor& v,
                                 const AttentionResult& forward,
                                 const Terms& terms,
                                 const AttentionOptions& options) {
  const kernels::Call call(q, k, v, terms, options);
  CheckTypes(q, k, v);
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

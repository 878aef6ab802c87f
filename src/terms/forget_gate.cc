#include "locus/forget_gate.h"

#include <cmath>
#include <cstdint>

#include "core/fail.h"

namespace locus {
namespace {

// Calls f(b, h, first) for each contiguous row (b, h) of [B, H, L], where
// `first` is the index of its first element.
template <typename F>
void ForEachRow(const Tensor& x, const F& f) {
  if (x.size(2) == 0) return;  // B and H may be huge then
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      f(b, h, (b * x.size(1) + h) * x.size(2));
    }
  }
}

void CheckRank(const char* what, const Tensor& x) {
  if (x.rank() != 3) {
    Fail("{} must be [batch, heads, length], got {}", what, x.Describe());
  }
}

}  // namespace

Tensor ForgetGateSums(const Tensor& log_gates, const Tensor& before) {
  CheckRank("log_gates", log_gates);
  if (before.defined() &&
      (before.rank() != 2 || before.size(0) != log_gates.size(0) ||
       before.size(1) != log_gates.size(1))) {
    Fail("before must be [{}, {}], as the log gates are, got {}",
         log_gates.size(0), log_gates.size(1), before.Describe());
  }
  Tensor sums = Tensor::Empty(DType::kF64, log_gates.shape());
  double* out = sums.MutableData<double>();
  ForEachRow(sums, [&](int64_t b, int64_t h, int64_t first) {
    double sum = before.defined() ? before.At(b, h) : 0.0;
    if (!std::isfinite(sum)) {
      Fail("before must be finite, got {} in sequence {}, head {}", sum, b, h);
    }
    for (int64_t l = 0; l < sums.size(2); ++l) {
      const double gate = log_gates.At(b, h, l);
      if (!std::isfinite(gate)) {
        Fail(
            "a log gate must be finite, got {} in sequence {}, head {}, token "
            "{}",
            gate, b, h, l);
      }
      sum += gate;
      out[first + l] = sum;
    }
  });
  return sums;
}

Tensor ForgetGateBias(const Tensor& sums) {
  CheckRank("sums", sums);
  const Tensor from = sums.dtype() == DType::kF64 ? sums : sums.To(DType::kF64);
  Tensor bias = Tensor::Empty(DType::kF32, sums.shape());
  float* out = bias.MutableData<float>();
  const int64_t length = sums.size(2);
  ForEachRow(bias, [&](int64_t b, int64_t h, int64_t first) {
    const double* row =
        from.Data<double>() + b * from.strides()[0] + h * from.strides()[1];
    const int64_t step = from.strides()[2];
    for (int64_t j = 0; j < length; ++j) {
      out[first + j] =
          static_cast<float>(row[(length - 1) * step] - row[j * step]);
    }
  });
  return bias;
}

Tensor ForgetGatePullBack(const Tensor& d_key_bias) {
  CheckRank("d_key_bias", d_key_bias);
  const int64_t length = d_key_bias.size(2);
  Tensor d_log_gates = Tensor::Empty(DType::kF64, d_key_bias.shape());
  double* out = d_log_gates.MutableData<double>();
  // Forward: K_j = sum_{l > j} log f_l. Backward: sum over j < l.
  ForEachRow(d_log_gates, [&](int64_t b, int64_t h, int64_t first) {
    double sum = 0.0;
    for (int64_t l = 0; l < length; ++l) {
      out[first + l] = sum;
      sum += d_key_bias.At(b, h, l);
    }
  });
  return d_key_bias.dtype() == DType::kF64 ? d_log_gates
                                           : d_log_gates.To(DType::kF32);
}

}  // namespace locus

// The bias operands of a call, per key (K) and per pair (M), for all drivers.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_OPERAND_BIAS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_OPERAND_BIAS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_OPERAND_BIAS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_OPERAND_BIAS_INL_H_
#endif

#include <algorithm>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "kernels/plan/plan.h"
#include "kernels/terms/log2_domain.h"
#include "kernels/terms/offset_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Rows of a tensor [B or 1, H or 1, L or 1, keys], broadcast by zero strides.
inline kernels::Rows BroadcastRows(const Tensor& t) {
  std::vector<int64_t> strides = t.strides();
  for (size_t axis = 0; axis < 3; ++axis) {
    if (t.shape()[axis] == 1) strides[axis] = 0;
  }
  return kernels::Rows(
      Tensor::Borrow(t.dtype(), t.shape(), std::move(strides), t.Raw()));
}

class OperandBias {
 public:
  explicit OperandBias(const kernels::Call& call) : call_(call) {
    const AttentionOptions& o = call.plan.options;
    if (o.key_bias.defined()) LayOutKeys(o.key_bias);
    if (o.pair_bias.defined()) pairs_.emplace(BroadcastRows(o.pair_bias));
  }

  bool present() const { return heads_ > 0 || pairs_; }
  bool has_pairs() const { return pairs_.has_value(); }
  // K times log2(e) for head h, indexed by key in sorted order, or nullptr.
  // Padded so that whole panels, and a vector from any key, can be read.
  const float* Keys(int64_t b, int64_t h) const {
    if (heads_ == 0) return nullptr;
    return keys_.data() +
           ((batch_ == 1 ? 0 : b) * heads_ + (heads_ == 1 ? 0 : h)) * stride_;
  }

  // M of query i, indexed by key; nullptr if it cannot be used in place.
  const float* PairRow(int64_t b, int64_t h, int64_t i) const {
    if (call_.plan.tokens.KeyOrder(b) != nullptr) return nullptr;
    return pairs_->Direct(b, h, call_.plan.tokens.QuerySource(b, i));
  }

  // s[j] += K + M, times log2(e), for the keys `seen` of query i, all in sorted
  // order; s is indexed by key.
  void Add(int64_t b, int64_t h, int64_t i, Interval seen, float* s) const {
    if (const float* row = Keys(b, h)) {
      for (int64_t j = seen.begin; j < seen.end; j += kLanesI) {
        StoreFirst(kDF, hn::Add(hn::LoadU(kDF, s + j), hn::LoadU(kDF, row + j)),
                   seen.end - j, s + j);
      }
    }
    if (pairs_) AddPairs(b, h, i, seen, s);
  }

 private:
  void LayOutKeys(const Tensor& bias);
  void AddPairs(int64_t b, int64_t h, int64_t i, Interval seen, float* s) const;
  // s[n] += log2(e) row[n] for `count` numbers.
  static void AddRow(const float* row, int64_t count, float* s) {
    const VF log2e = hn::Set(kDF, static_cast<float>(kLog2E));
    int64_t n = 0;
    for (; n + kLanesI <= count; n += kLanesI) {
      hn::StoreU(
          hn::MulAdd(log2e, hn::LoadU(kDF, row + n), hn::LoadU(kDF, s + n)),
          kDF, s + n);
    }
    for (; n < count; ++n) s[n] += static_cast<float>(kLog2E) * row[n];
  }

  const kernels::Call& call_;
  int64_t batch_ = 1, heads_ = 0, stride_ = 0;  // of the bias per key
  FloatBuffer keys_;
  std::optional<kernels::Rows> pairs_;
};

inline void OperandBias::LayOutKeys(const Tensor& bias) {
  const CallSizes& s = call_.sizes;
  if (bias.size(0) > 1 || call_.plan.tokens.Sequences() > 1) batch_ = s.batch;
  heads_ = bias.size(1);
  stride_ = AlignUp(s.k_len, kColsI) + kLanesI;
  keys_.Resize(batch_ * heads_ * stride_);
  std::fill_n(keys_.data(), batch_ * heads_ * stride_, 0.0F);
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t* order = call_.plan.tokens.KeyOrder(b);
    const int64_t keys = order == nullptr ? s.k_len : call_.Keys(b).size();
    for (int64_t h = 0; h < heads_; ++h) {
      float* row = keys_.data() + (b * heads_ + h) * stride_;
      for (int64_t j = 0; j < keys; ++j) {
        row[j] = Log2Bias(bias.At(bias.size(0) == 1 ? 0 : b, h,
                                  order == nullptr ? j : order[j]));
      }
    }
  }
}

inline void OperandBias::AddPairs(int64_t b, int64_t h, int64_t i,
                                  Interval seen, float* s) const {
  if (const float* row = PairRow(b, h, i)) {
    AddRow(row + seen.begin, seen.size(), s + seen.begin);
    return;
  }
  const int64_t query = call_.plan.tokens.QuerySource(b, i);
  const int64_t* order = call_.plan.tokens.KeyOrder(b);
  // Another type, or keys out of order: piece by piece.
  constexpr int64_t kPiece = 64;
  HWY_ALIGN float piece[kPiece];
  for (int64_t j = seen.begin; j < seen.end; j += kPiece) {
    const int64_t count = std::min(kPiece, seen.end - j);
    if (order == nullptr) {
      pairs_->LoadPart(b, h, query, j, count, piece);
    } else {
      for (int64_t n = 0; n < count; ++n) {
        pairs_->LoadPart(b, h, query, order[j + n], 1, piece + n);
      }
    }
    AddRow(piece, count, s + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_OPERAND_BIAS_INL_H_

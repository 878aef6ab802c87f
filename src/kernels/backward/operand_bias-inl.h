// Gradients of the bias operands of a call (key_bias, pair_bias), from ds of a
// tile. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_OPERAND_BIAS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_OPERAND_BIAS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_OPERAND_BIAS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_OPERAND_BIAS_INL_H_
#endif

#include <algorithm>

#include "kernels/backward/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class OperandBiasGrad {
 public:
  OperandBiasGrad(const BackwardTables& bp, const BackwardTile& tile)
      : call_(bp.packed.call),
        keys_(bp.operands.key_bias.defined()),
        shared_(bp.shared_pairs),
        t_(tile) {
    Tensor& pairs = bp.operands.pair_bias;
    if (pairs.defined() && !shared_) pairs_ = pairs.MutableData<float>();
  }

  bool present() const { return keys_ || shared_ || pairs_ != nullptr; }
  // `first` is the first query of the task.
  void BeginHead(int64_t first) { first_ = first; }

  // ds of row r, indexed by key.
  void AddRow(const Block& block, int64_t r, Interval seen, const float* ds) {
    const int64_t k_len = call_.sizes.k_len, i = block.first + r;
    if (keys_) {
      AddScaled(1.0F, ds + seen.begin, seen.size(),
                t_.term_sums->key_bias.data() + seen.begin);
    }
    if (shared_) {
      std::copy(
          ds + seen.begin, ds + seen.end,
          t_.term_sums->pair_bias.data() + (i - first_) * k_len + seen.begin);
    } else if (pairs_ != nullptr) {
      StoreRow(block, i, seen, ds);
    }
  }

 private:
  void StoreRow(const Block& block, int64_t i, Interval seen, const float* ds) {
    const CallSizes& s = call_.sizes;
    const Tokens& keys = call_.Keys(block.b);
    const int64_t query = call_.Queries(block.b).source[static_cast<size_t>(i)];
    float* to =
        pairs_ + ((block.b * s.q_heads + block.h) * s.q_len + query) * s.k_len;
    if (keys.in_order) {
      std::copy(ds + seen.begin, ds + seen.end, to + seen.begin);
      return;
    }
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      to[keys.source[static_cast<size_t>(j)]] = ds[j];
    }
  }

  const Call& call_;
  const bool keys_, shared_;
  const BackwardTile& t_;
  float* pairs_ = nullptr;  // [B, Hq, Lq, Lk]: one task stores each element
  int64_t first_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_OPERAND_BIAS_INL_H_

// k_j.Tk[b] of one head for every bucket: the part of a key table that does not
// depend on the query. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_KEY_TABLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_KEY_TABLE_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_KEY_TABLE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_KEY_TABLE_INL_H_
#endif

#include "kernels/forward/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;
constexpr DI kDI;

// k_j.Tk[b] for one head, by bucket: [buckets][cols].
class KeyTable {
 public:
  void Build(const Packed& packed, int64_t b, int64_t h);
  const float* Row(int64_t bucket) const {
    return values_.data() + bucket * cols_;
  }
  int64_t cols() const { return cols_; }

 private:
  int64_t cols_ = 0;
  FloatBuffer values_, plain_, table_;
};

inline void KeyTable::Build(const Packed& packed, int64_t b, int64_t h) {
  const Call& call = packed.call;
  const int64_t dim = call.sizes.head_dim;
  const Tensor& rows = call.terms.k_table->rows;
  const int64_t count = rows.size(1);
  cols_ = packed.cols;
  values_.Resize(AlignUp(count, kRowsI) * cols_);
  // The packed keys serve if they are neither rotated nor extended.
  const float* panels = packed.Keys(b, h);
  if (call.RotationOfKeys() != nullptr || packed.extra > 0) {
    plain_.Resize(cols_ * dim);
    PackRows(call.k, call.Keys(b), b, call.KvHead(h), cols_, plain_.data());
    panels = plain_.data();
  }
  table_.Resize(dim * kRowsI);
  const int64_t head = rows.size(0) == 1 ? 0 : h;
  for (int64_t t = 0; t < count; t += kRowsI) {
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t r = 0; r < kRowsI; ++r) {
        table_.data()[d * kRowsI + r] =
            t + r < count ? static_cast<float>(rows.At(head, t + r, d)) : 0.0F;
      }
    }
    for (int64_t p = 0; p < cols_; p += kColsI) {
      Product(
          table_.data(), kRows, kAdjacent, panels + p * dim, kCols,
          static_cast<size_t>(dim),
          Store{values_.data() + t * cols_ + p, static_cast<size_t>(cols_)});
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_KEY_TABLE_INL_H_

// The products k_j.Tk[b] of one head for every bucket, which do not depend on
// the query. Compiled once per SIMD target.
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
  explicit KeyTable(const PackedTables& tables);
  void Build(const Packed& packed, int64_t b, int64_t h) noexcept;
  const float* Row(int64_t bucket) const {
    return values_.data() + bucket * cols_;
  }
  int64_t cols() const { return cols_; }

 private:
  int64_t cols_ = 0;
  FloatBuffer values_, plain_, plain_rows_, table_;
};

inline KeyTable::KeyTable(const PackedTables& tables) : cols_(tables.cols) {
  if (!tables.HasKeyTable()) return;
  const Call& call = tables.call;
  const int64_t dim = call.sizes.head_dim;
  values_.Resize(AlignUp(call.terms.k_table->rows.size(1), kRowsI) * cols_);
  table_.Resize(dim * kRowsI);
  // The packed keys can be used if they are neither rotated nor extended.
  if (call.RotationOfKeys() != nullptr || tables.extra > 0) {
    plain_.Resize(cols_ * dim);
    plain_rows_.Resize(FourRows::Floats(dim));
  }
}

inline void KeyTable::Build(const Packed& packed, int64_t b,
                            int64_t h) noexcept {
  const Call& call = packed.call;
  const int64_t dim = call.sizes.head_dim;
  const Tensor& rows = call.terms.k_table->rows;
  const int64_t count = rows.size(1);
  const float* panels = packed.Keys(b, h);
  if (plain_.capacity() > 0) {
    PackRows(call.k, call.Keys(b), b, call.KvHead(h), cols_,
             FourRows(plain_rows_.data(), dim), plain_.data());
    panels = plain_.data();
  }
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

// The sums of the tasks of a backward pass. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_SUMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_SUMS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_SUMS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_SUMS_INL_H_
#endif

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/backward/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Floats that a task clears and then adds to.
class SumBuffer {
 public:
  SumBuffer() = default;
  explicit SumBuffer(int64_t size) : size_(size), floats_(size) {}
  void Clear() { std::fill_n(floats_.data(), size_, 0.0F); }
  float* data() { return floats_.data(); }
  const float* data() const { return floats_.data(); }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
  FloatBuffer floats_;
};

// Gradients of the keys and values that a task sees; reused once their unit is
// finished.
struct KeySums {
  explicit KeySums(const BackwardTables& bp);
  void Clear() {
    keys.Clear();
    values.Clear();
    plain_keys.Clear();
  }

  SumBuffer keys;        // [cols + kRows][depth padded], times log2(e)
  SumBuffer values;      // [cols + kRows][value_dim padded]
  SumBuffer plain_keys;  // [cols + kRows][D padded]: dk via a key table
};

// Gradients of the terms, for each task of a wave. Members for terms that a
// call does not have are empty.
struct TermSums {
  // For tasks of up to `stretch` queries.
  TermSums(const BackwardTables& bp, int64_t stretch);
  void Clear();

  SumBuffer q_table;            // [width + kRows][table_dim padded], by offset
  SumBuffer v_table;            // [width padded][Dv padded], by offset
  SumBuffer k_table;            // [buckets padded][D padded]
  SumBuffer extra_q, extra_k;   // [positions][E]
  SumBuffer key_bias;           // [keys], in sorted order
  SumBuffer pair_bias;          // [queries][keys] if shared, in sorted order
  std::vector<double> scale;    // [positions]
  std::vector<double> theta;    // frequencies of a head, for a trained rotation
  std::vector<double> key_row;  // [D]: the single row of a folded key table
  std::vector<double> bias;     // [width], by offset
  std::vector<double> special;  // [buckets]: bias of grids and special tokens
  double past = 0.0, future = 0.0;  // slopes of a ramp over far-apart positions
  std::optional<BiasProfileGrads> profile;  // all but its distances,
  std::vector<double> profile_by_offset;    // which are here
};

// Rows are added in groups of kRows, which may reach past the last panel.
inline KeySums::KeySums(const BackwardTables& bp)
    : keys((bp.packed.cols + kRowsI) * bp.depth_stride),
      values((bp.packed.cols + kRowsI) * bp.value_pad) {
  if (bp.packed.HasKeyTable()) {
    plain_keys = SumBuffer((bp.packed.cols + kRowsI) * bp.dim_stride);
  }
}

inline TermSums::TermSums(const BackwardTables& bp, int64_t stretch) {
  const PackedTables& packed = bp.packed;
  const Terms& terms = packed.call.terms;
  if (packed.q_table) {
    q_table =
        SumBuffer((packed.q_table->map.width() + kRowsI) * bp.table_stride);
  }
  if (packed.v_table) {
    v_table =
        SumBuffer(AlignUp(packed.v_table->map.width(), kRowsI) * bp.value_pad);
  }
  if (packed.HasKeyTable()) {
    k_table = SumBuffer(AlignUp(terms.k_table->buckets.count, kRowsI) *
                        bp.dim_stride);
  } else if (terms.k_table) {
    key_row.resize(static_cast<size_t>(packed.call.sizes.head_dim));
  }
  if (terms.extra_dot) {
    extra_q = SumBuffer(terms.extra_dot->q_rows.size(1) * packed.extra);
    extra_k = SumBuffer(terms.extra_dot->k_rows.size(1) * packed.extra);
  }
  const CallSizes& s = packed.call.sizes;
  if (bp.operands.key_bias.defined()) key_bias = SumBuffer(s.k_len);
  if (bp.shared_pairs) pair_bias = SumBuffer(stretch * s.k_len);
  if (terms.scale.rows.defined()) {
    scale.resize(static_cast<size_t>(terms.scale.rows.size(1)));
  }
  if (terms.rotate && terms.rotate->trains) {
    theta.resize(terms.rotate->ThetaOf(0).size());
  }
  if (!packed.bias) return;
  if (packed.bias->by_offset()) {
    bias.resize(static_cast<size_t>(packed.bias->map().width()));
  } else if (const auto* table = std::get_if<BiasTable>(&*terms.bias)) {
    special.resize(static_cast<size_t>(table->buckets.count));
  } else if (const auto* of = std::get_if<BiasProfile>(&*terms.bias)) {
    profile = BiasProfileGrads{std::vector<double>(),
                               std::vector<double>(of->row_gain.size()),
                               Tensor::Zeros(DType::kF64, of->base.shape()),
                               Tensor::Zeros(DType::kF64, of->slope.shape())};
    profile_by_offset.resize(packed.bias->profile()->size());
  }
}

inline void TermSums::Clear() {
  for (SumBuffer* sums : {&q_table, &v_table, &k_table, &extra_q, &extra_k,
                          &key_bias, &pair_bias}) {
    sums->Clear();
  }
  for (auto* list :
       {&scale, &theta, &key_row, &bias, &special, &profile_by_offset}) {
    std::ranges::fill(*list, 0.0);
  }
  past = future = 0.0;
  if (!profile) return;
  std::ranges::fill(profile->row_gain, 0.0);
  for (Tensor* of : {&profile->base, &profile->slope}) {
    std::fill_n(of->MutableData<double>(), of->NumElements(), 0.0);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_SUMS_INL_H_

// How a backward pass is divided into tasks. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_SPLIT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_SPLIT_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_SPLIT_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_SPLIT_INL_H_
#endif

#include "kernels/backward/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// It depends on the shape alone, but for the waves, which change no bit.
struct BackwardSplit {
  BackwardSplit(const PackedTables& tables, const BackwardTables& backward,
                bool want_terms);

  int64_t stretch = 0;   // queries per task
  int64_t per_head = 0;  // tasks
  int64_t per_unit = 0;
  int64_t wave = 0;  // units whose tables and sums exist at a time
};

inline BackwardSplit::BackwardSplit(const PackedTables& tables,
                                    const BackwardTables& backward,
                                    bool want_terms) {
  const CallSizes& s = tables.call.sizes;
  // One task per head, and with few heads several stretches of queries, each of
  // four tiles at least.
  constexpr int64_t kEnoughTasks = 8;
  const int64_t stretches =
      std::clamp<int64_t>(kEnoughTasks / (s.batch * s.q_heads), 1,
                          std::max<int64_t>(s.q_len / (4 * kBwdQueries), 1));
  stretch = AlignUp((s.q_len + stretches - 1) / stretches, kBwdQueries);
  per_head = (s.q_len + stretch - 1) / stretch;
  per_unit = tables.group * per_head;
  // Tables of heads and sums of tasks must not pile up: as many units as make
  // 64 MiB, but at least two per thread. What a unit packs is gone when it is
  // done.
  int64_t floats = 1;
  const auto add = [&](const TableByOffset* table, int64_t stride) {
    if (table == nullptr) return;
    floats += table->map.width() * (tables.group * 2 * stride +
                                    (want_terms ? per_unit : 0) * stride);
  };
  add(tables.q_table.get(), backward.dim_stride);
  add(tables.v_table.get(), backward.value_pad);
  if (tables.extra > 0) floats += per_unit * 2 * tables.cols * tables.extra;
  if (tables.bias) floats += per_unit * 2 * tables.bias->map().width();
  constexpr int64_t kWaveFloats = int64_t{16} << 20;
  wave = std::clamp<int64_t>(
      std::max<int64_t>(2 * tables.threads, kWaveFloats / floats), 1,
      tables.Units());
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_SPLIT_INL_H_

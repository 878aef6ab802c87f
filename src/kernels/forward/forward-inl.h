// Fused forward attention: query blocks x key tiles with an online softmax.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#endif

#include <vector>

#include "kernels/forward/forward.h"
#include "kernels/terms/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// A task holds the state of 96 queries of one head while it walks the keys:
// 8 blocks of 12 rows (16 of 6). Their outputs at D = 128 are 48 KiB; reading a
// key tile once for 96 queries costs a hundredth of the arithmetic.
constexpr int64_t kTaskQueries = 96;
static_assert(kTaskQueries == DisentangledRows::kQueries);

// Keys per tile: keys and values of 512 x 64 floats are 256 KiB, 512 x 128 are
// 512 KiB, well inside a 1 MiB L2; wider heads take half as many. The scores of
// one block, 12 x 512 floats, are 24 KiB and stay in L1.
inline int64_t TileKeys(int64_t depth, int64_t value_dim) {
  return depth + value_dim > 320 ? 256 : 512;
}

// Scratch of one thread.
struct ForwardScratch {
  FloatBuffer blocks, scores, out, by_offset;
  std::vector<Block> block_list;
  std::vector<RowState> states;
  KeyTable key_table;
  DisentangledRows disentangled;
};

class ForwardTask {
 public:
  ForwardTask(const Packed& packed, ForwardScratch& scratch)
      : packed_(packed),
        call_(packed.call),
        scratch_(scratch),
        scorer_(packed),
        tile_(TileKeys(packed.depth, call_.sizes.value_dim)),
        out_stride_(PaddedCols(call_.sizes.value_dim)) {
    if (packed_.v_table) {
      offset_stride_ =
          AlignUp(packed_.v_table->map.width(), kLanesI) + 2 * kEndPad;
    }
  }

  // The tables of the head that Run works on.
  void SetTables(const KeyTable* keys, DisentangledRows* rows) {
    scorer_.SetKeyTable(keys);
    disentangled_ = rows;
  }

  // Attends queries [first, first + count) of (b, h), sorted order.
  void Run(int64_t b, int64_t h, int64_t first, int64_t count, Tensor& out,
           float* lse);

 private:
  void Tile(Block& block, int64_t index, int64_t tile);
  void MultiplyValues(const Block& block, int64_t tile, int64_t lo, int64_t hi,
                      const float* p, const float* rescale, float* out) const;
  void Finish(const Block& block, int64_t index, Tensor& out, float* lse);

  const Packed& packed_;
  const Call& call_;
  ForwardScratch& scratch_;
  Scorer scorer_;
  // A row's stride of 512 floats would put every row in the same cache sets;
  // one more line spreads them. Fixed, so that rows are plain displacements.
  static constexpr int64_t lds_ = 512 + 16;
  int64_t tile_, out_stride_;
  int64_t offset_stride_ = 0;
  DisentangledRows* disentangled_ = nullptr;
};

inline void ForwardTask::Run(int64_t b, int64_t h, int64_t first, int64_t count,
                             Tensor& out, float* lse) {
  const int64_t n_blocks = (count + kRowsI - 1) / kRowsI;
  scratch_.blocks.Resize(n_blocks * scorer_.BlockFloats());
  scratch_.scores.Resize(kRowsI * lds_);
  scratch_.out.Resize(n_blocks * kRowsI * out_stride_);
  std::fill_n(scratch_.out.data(), n_blocks * kRowsI * out_stride_, 0.0F);
  if (offset_stride_ > 0) {
    scratch_.by_offset.Resize(n_blocks * kRowsI * offset_stride_);
    std::fill_n(scratch_.by_offset.data(), n_blocks * kRowsI * offset_stride_,
                0.0F);
  }
  scratch_.states.assign(static_cast<size_t>(n_blocks * kRowsI), RowState());
  std::vector<Block>& blocks = scratch_.block_list;
  blocks.resize(static_cast<size_t>(n_blocks));
  if (disentangled_ != nullptr) {
    scorer_.SetDisentangled(disentangled_->BeginQueries(
                                first, count, call_.AnyVisible(b, first, count))
                                ? disentangled_
                                : nullptr);
  }
  Interval any{std::numeric_limits<int64_t>::max(), 0};
  for (int64_t n = 0; n < n_blocks; ++n) {
    Block& block = blocks[static_cast<size_t>(n)];
    scorer_.Prepare(b, h, first + n * kRowsI,
                    std::min(kRowsI, count - n * kRowsI),
                    scratch_.blocks.data() + n * scorer_.BlockFloats(), block);
    any.begin = std::min(any.begin, block.any.begin);
    any.end = std::max(any.end, block.any.end);
  }
  for (int64_t tile = any.end > any.begin ? AlignDown(any.begin, tile_)
                                          : any.end;
       tile < any.end; tile += tile_) {
    for (int64_t n = 0; n < n_blocks; ++n) {
      Tile(blocks[static_cast<size_t>(n)], n, tile);
    }
  }
  for (int64_t n = 0; n < n_blocks; ++n) {
    Finish(blocks[static_cast<size_t>(n)], n, out, lse);
  }
}

inline void ForwardTask::Tile(Block& block, int64_t index, int64_t tile) {
  const Interval any = Within(block.any, {tile, tile + tile_});
  if (any.empty()) return;
  const int64_t lo = AlignDown(any.begin, kColsI);
  float* s = scratch_.scores.data();
  float max[kRows];
  scorer_.Scores<lds_>(block, tile, lo, any.end, s, max);

  float rescale[kRows];
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* row = s + r * lds_ - tile;  // indexed by key
    const Interval seen = Within(block.seen[r], any);
    rescale[r] = 1.0F;
    // What the block sees and this row does not has no weight.
    if (seen.empty()) {
      std::fill(row + any.begin, row + any.end, 0.0F);
      continue;
    }
    std::fill(row + any.begin, row + seen.begin, 0.0F);
    RowState& state = scratch_.states[static_cast<size_t>(index * kRowsI + r)];
    rescale[r] = OnlineSoftmaxRow(row + seen.begin, seen.size(), max[r], state);
    std::fill(row + seen.end, row + any.end, 0.0F);
    if (offset_stride_ > 0) {
      float* sums =
          scratch_.by_offset.data() + (index * kRowsI + r) * offset_stride_;
      if (rescale[r] != 1.0F) {
        SetScaled(rescale[r], sums, offset_stride_, sums);
      }
      SumByOffset(packed_.v_table->map, block.position[r], call_.Keys(block.b),
                  seen, row, sums);
    }
  }
  MultiplyValues(block, tile, any.begin, any.end, s, rescale,
                 scratch_.out.data() + index * kRowsI * out_stride_);
}

inline void ForwardTask::MultiplyValues(const Block& block, int64_t tile,
                                        int64_t lo, int64_t hi, const float* p,
                                        const float* rescale,
                                        float* out) const {
  if (!packed_.ValuesFinite(block.b, block.h)) {
    // 0 * inf is NaN: weights of keys that a row does not see must not meet
    // values that are not finite. Row by row, over what it sees.
    for (int64_t r = 0; r < block.count; ++r) {
      float* o = out + r * out_stride_;
      for (int64_t d = 0; d < call_.sizes.value_dim; ++d) o[d] *= rescale[r];
      const int64_t end = std::min(hi, block.seen[r].end);
      for (int64_t j = std::max(lo, block.seen[r].begin); j < end; ++j) {
        const float weight = p[r * lds_ + j - tile];
        for (int64_t d = 0; d < call_.sizes.value_dim; ++d) {
          const int64_t panel = AlignDown(d, kColsI);
          o[d] +=
              weight * packed_.Values(block.b, block.h, j, panel)[d - panel];
        }
      }
    }
    return;
  }
  for (int64_t c = 0; c < out_stride_; c += kColsI) {
    Product(p + (lo - tile), 1, Fixed<lds_>(),
            packed_.Values(block.b, block.h, lo, c), kCols,
            static_cast<size_t>(hi - lo),
            ScaleAddTo{rescale, out + c, static_cast<size_t>(out_stride_)});
  }
}

inline void ForwardTask::Finish(const Block& block, int64_t index, Tensor& out,
                                float* lse) {
  const CallSizes& s = call_.sizes;
  float* o = scratch_.out.data() + index * kRowsI * out_stride_;
  if (offset_stride_ > 0) {
    // out += weights by offset * Tv
    const PackedRows& table = *packed_.v_table;
    const int64_t width = table.map.width();
    float* w = scratch_.by_offset.data() + index * kRowsI * offset_stride_;
    for (int64_t r = 0; r < kRowsI; ++r) {
      float* row = w + r * offset_stride_;
      FoldEnds(row, width);
    }
    for (int64_t c = 0; c < out_stride_; c += kColsI) {
      Product(w + kEndPad, 1, static_cast<size_t>(offset_stride_),
              table.Head(block.h).Panel(c), kCols, static_cast<size_t>(width),
              AddTo{o + c, static_cast<size_t>(out_stride_)});
    }
  }
  for (int64_t r = 0; r < block.count; ++r) {
    const RowState& state =
        scratch_.states[static_cast<size_t>(index * kRowsI + r)];
    const int64_t source =
        call_.Queries(block.b).source[static_cast<size_t>(block.first + r)];
    const int64_t row = (block.b * s.q_heads + block.h) * s.q_len + source;
    float* x = o + r * out_stride_;
    SetScaled(InverseSum(state), x, s.value_dim, x);
    kernels::StoreRow(out, row, x, s.value_dim);
    if (lse != nullptr) lse[row] = LogSumExp(state);
  }
}

// Queries [first, first + count) of (b, h).
inline void ForwardQueries(const Packed& packed, int64_t b, int64_t h,
                           int64_t first, int64_t count, Tensor& out,
                           float* lse) {
  static thread_local ForwardScratch scratch;
  ForwardTask run(packed, scratch);
  if (packed.call.terms.k_table && !packed.fold_key_row) {
    scratch.key_table.Build(packed, b, h);
    const bool pairs = DisentangledRows::Fits(packed);
    if (pairs) scratch.disentangled.BeginHead(packed, b, h, scratch.key_table);
    run.SetTables(&scratch.key_table, pairs ? &scratch.disentangled : nullptr);
  }
  for (int64_t q = 0; q < count; q += kTaskQueries) {
    CheckInterrupt();
    run.Run(b, h, first + q, std::min(kTaskQueries, count - q), out, lse);
  }
}

// Most units are a task each: a thread packs the keys and values of one, uses
// them while they are in its own cache, and forgets them. The last unit of each
// thread is packed beforehand and shared by all threads, in parts, so that all
// end at the same time.
void ForwardF32(const Call& call, Tensor& out, float* lse) {
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const int threads = call.plan.threads;
  const PackedTables tables(call);
  tables.PackTables(0, s.q_heads);
  const int64_t units = tables.Units();
  const int64_t owned =
      threads == 1 ? units : std::max<int64_t>(units - threads, 0);
  Packed shared(tables);
  shared.Pack(owned, units - owned, /*with_values=*/true);
  // A key table is made once per head.
  const bool whole_heads = call.terms.k_table && !tables.fold_key_row;
  const int64_t queries = whole_heads ? s.q_len : kTaskQueries;
  const int64_t parts = (s.q_len + queries - 1) / queries;
  const int64_t shared_heads = (units - owned) * tables.group;
  ParallelFor(owned + shared_heads * parts, threads, [&](int64_t task) {
    if (task < owned) {
      Packed own(tables);
      own.Pack(task, 1, /*with_values=*/true);
      for (int64_t n = 0; n < tables.group; ++n) {
        ForwardQueries(own, task / s.kv_heads,
                       task % s.kv_heads * tables.group + n, 0, s.q_len, out,
                       lse);
      }
      return;
    }
    // Last queries first: under a causal mask they are the longest.
    const int64_t part = parts - 1 - (task - owned) % parts;
    const int64_t head = owned * tables.group + (task - owned) / parts;
    ForwardQueries(shared, head / s.q_heads, head % s.q_heads, part * queries,
                   std::min(queries, s.q_len - part * queries), out, lse);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_

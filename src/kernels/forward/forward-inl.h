// Fused forward attention: query blocks x key tiles with an online softmax.
// Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#endif

#include <vector>

#include "kernels/forward/forward.h"
#include "kernels/terms/score_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// A task holds the state of 96 queries of one head while it walks the keys:
// 8 blocks of 12 rows (16 of 6). Their outputs at D = 128 are 48 KiB; reading a
// key tile once for 96 queries costs a hundredth of the arithmetic.
constexpr int64_t kTaskQueries = 96;
static_assert(kTaskQueries == PairRows::kQueries);

// Keys a tile: keys and values of 512 x 64 floats are 256 KiB, 512 x 128 are
// 512 KiB, well inside a 1 MiB L2; wider heads take half as many. The scores of
// one block, 12 x 512 floats, are 24 KiB and stay in L1.
inline int64_t TileKeys(int64_t depth, int64_t value_dim) {
  return depth + value_dim > 320 ? 256 : 512;
}

// Turns scores [begin, end) of a row, of which `max` is the largest, into
// p = 2^(s - ref) and updates the state. Returns what earlier sums must be
// multiplied by: a power of two.
inline float SoftmaxRow(float* s, int64_t begin, int64_t end, float max,
                        RowState& state) {
  if (max == kMinusInf) {
    for (int64_t j = begin; j < end; ++j) {
      // A NaN next to -inf may hide from the maximum, but not from here.
      s[j] = s[j] == kMinusInf ? 0.0F : s[j];
      state.sum += s[j];
    }
    return 1.0F;
  }
  float ref = std::max(state.ref, std::ceil(max));
  // The exponential wants an integer of at most 2^21. Beyond that, and for an
  // infinite or NaN maximum, shift the row to a reference of 0 first.
  constexpr float kLargest = 2097152.0F;
  if (!(std::abs(ref) <= kLargest)) {
    if (std::isnan(ref)) ref = 0.0F;
    for (int64_t j = begin; j < end; ++j) s[j] -= ref;
  }
  const float keep = state.ref == kMinusInf ? 0.0F
                     : state.ref == ref     ? 1.0F
                                            : PowerOfTwo(state.ref - ref);
  const Exp2Reference reference(std::abs(ref) <= kLargest ? ref : 0.0F);
  VF sum = hn::Zero(kDF);
#pragma GCC unroll 4
  for (int64_t j = begin; j < end; j += kLanesI) {
    const VF p = Exp2(hn::LoadU(kDF, s + j), reference);
    sum = hn::Add(sum, p);
    hn::StoreU(p, kDF, s + j);
  }
  state.sum = state.sum * keep + hn::GetLane(hn::SumOfLanes(kDF, sum));
  state.ref = ref;
  return keep;
}

// Scratch of one thread.
struct ForwardScratch {
  FloatBuffer blocks, scores, out, by_rel;
  std::vector<Block> block_list;
  std::vector<RowState> states;
  KeyTable key_table;
  PairRows pairs;
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
      rel_stride_ =
          AlignUp(packed_.v_table->map.width(), kLanesI) + 2 * kRelPad;
    }
  }

  // The tables of the head that Run works on.
  void SetTables(const KeyTable* keys, PairRows* pairs) {
    scorer_.SetKeyTable(keys);
    pairs_ = pairs;
  }

  // Attends queries [first, first + count) of (b, h), sorted order.
  void Run(int64_t b, int64_t h, int64_t first, int64_t count, Tensor& out,
           float* lse);

 private:
  void Tile(Block& block, int64_t index, int64_t tile);
  void AddByRel(const Block& block, int64_t r, Interval keys, const float* p,
                float keep, float* by_rel) const;
  void MultiplyValues(const Block& block, int64_t tile, int64_t lo, int64_t hi,
                      const float* p, const float* keep, float* out) const;
  void Finish(const Block& block, int64_t index, Tensor& out, float* lse);

  const Packed& packed_;
  const Call& call_;
  ForwardScratch& scratch_;
  Scorer scorer_;
  // A row's stride of 512 floats would put every row in the same cache sets;
  // one more line spreads them. Fixed, so that rows are plain displacements.
  static constexpr int64_t lds_ = 512 + 16;
  int64_t tile_, out_stride_;
  int64_t rel_stride_ = 0;
  PairRows* pairs_ = nullptr;
};

inline void ForwardTask::Run(int64_t b, int64_t h, int64_t first, int64_t count,
                             Tensor& out, float* lse) {
  const int64_t n_blocks = (count + kRowsI - 1) / kRowsI;
  scratch_.blocks.Resize(n_blocks * scorer_.BlockFloats());
  scratch_.scores.Resize(kRowsI * lds_);
  scratch_.out.Resize(n_blocks * kRowsI * out_stride_);
  std::fill_n(scratch_.out.data(), n_blocks * kRowsI * out_stride_, 0.0F);
  if (rel_stride_ > 0) {
    scratch_.by_rel.Resize(n_blocks * kRowsI * rel_stride_);
    std::fill_n(scratch_.by_rel.data(), n_blocks * kRowsI * rel_stride_, 0.0F);
  }
  scratch_.states.assign(static_cast<size_t>(n_blocks * kRowsI), RowState());
  std::vector<Block>& blocks = scratch_.block_list;
  blocks.resize(static_cast<size_t>(n_blocks));
  if (pairs_ != nullptr) {
    scorer_.SetPairRows(
        pairs_->BeginQueries(first, count, call_.AnySees(b, first, count))
            ? pairs_
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
  const int64_t begin = std::max(block.any.begin, tile);
  const int64_t end = std::min(block.any.end, tile + tile_);
  if (begin >= end) return;
  const int64_t lo = AlignDown(begin, kColsI);
  float* s = scratch_.scores.data();
  float max[kRows];
  scorer_.Scores<lds_>(block, tile, lo, end, s, max);

  float keep[kRows];
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* row = s + r * lds_ - tile;  // indexed by key
    const Interval keys = Scorer::Vectors(block, r, lo, end);
    // What the block sees and this row does not has no weight.
    const int64_t empty_to = keys.begin == keys.end ? end : keys.begin;
    for (int64_t j = begin; j < empty_to; ++j) row[j] = 0.0F;
    for (int64_t j = keys.end; j < end; ++j) row[j] = 0.0F;
    keep[r] = 1.0F;
    if (keys.begin == keys.end) continue;
    RowState& state = scratch_.states[static_cast<size_t>(index * kRowsI + r)];
    keep[r] = SoftmaxRow(row, keys.begin, keys.end, max[r], state);
    for (int64_t j = keys.begin; j < block.sees[r].begin; ++j) row[j] = 0.0F;
    for (int64_t j = block.sees[r].end; j < keys.end; ++j) row[j] = 0.0F;
    if (rel_stride_ > 0) {
      AddByRel(block, r, keys, row, keep[r],
               scratch_.by_rel.data() + (index * kRowsI + r) * rel_stride_);
    }
  }
  MultiplyValues(block, tile, begin, end, s, keep,
                 scratch_.out.data() + index * kRowsI * out_stride_);
}

inline void ForwardTask::MultiplyValues(const Block& block, int64_t tile,
                                        int64_t lo, int64_t hi, const float* p,
                                        const float* keep, float* out) const {
  if (!packed_.ValuesFinite(block.b, block.h)) {
    // 0 * inf is NaN: weights of keys that a row does not see must not meet
    // values that are not finite. Row by row, over what it sees.
    for (int64_t r = 0; r < block.count; ++r) {
      float* o = out + r * out_stride_;
      for (int64_t d = 0; d < call_.sizes.value_dim; ++d) o[d] *= keep[r];
      const int64_t end = std::min(hi, block.sees[r].end);
      for (int64_t j = std::max(lo, block.sees[r].begin); j < end; ++j) {
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
            ScaleAddTo{keep, out + c, static_cast<size_t>(out_stride_)});
  }
}

inline void ForwardTask::AddByRel(const Block& block, int64_t r, Interval keys,
                                  const float* p, float keep,
                                  float* by_rel) const {
  const RelMap& map = packed_.v_table->map;
  const int64_t width = map.width();
  if (keep != 1.0F) {
    const VF k = hn::Set(kDF, keep);
    for (int64_t e = 0; e < rel_stride_; e += kLanesI) {
      hn::StoreU(hn::Mul(hn::LoadU(kDF, by_rel + e), k), kDF, by_rel + e);
    }
  }
  const Tokens& t = call_.Keys(block.b);
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  const int64_t m = block.position[r];
  if (t.runs.size() > 1 && t.RunOf(begin) != t.RunOf(end - 1)) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t rel = t.position[static_cast<size_t>(j)] - m;
      by_rel[RelStart(rel, map.first, width)] += p[j];
    }
    return;
  }
  // Weights of masked lanes are zero, so whole vectors may be added. Vectors
  // beyond either end of the table all go to the same place: sum them first.
  int64_t rel =
      t.position[static_cast<size_t>(begin)] - m - (begin - keys.begin);
  VF low = hn::Zero(kDF), high = hn::Zero(kDF);
  for (int64_t j = keys.begin; j < keys.end; j += kLanesI, rel += kLanesI) {
    const int64_t at = RelStart(rel, map.first, width);
    const VF w = hn::LoadU(kDF, p + j);
    if (at == 0) {
      low = hn::Add(low, w);
    } else if (at == width + kRelPad) {
      high = hn::Add(high, w);
    } else {
      hn::StoreU(hn::Add(hn::LoadU(kDF, by_rel + at), w), kDF, by_rel + at);
    }
  }
  hn::StoreU(hn::Add(hn::LoadU(kDF, by_rel), low), kDF, by_rel);
  float* top = by_rel + width + kRelPad;
  hn::StoreU(hn::Add(hn::LoadU(kDF, top), high), kDF, top);
}

inline void ForwardTask::Finish(const Block& block, int64_t index, Tensor& out,
                                float* lse) {
  const CallSizes& s = call_.sizes;
  float* o = scratch_.out.data() + index * kRowsI * out_stride_;
  if (rel_stride_ > 0) {
    // Fold the pads into the end buckets, then out += weights by rel * Tv.
    const PackedRows& table = *packed_.v_table;
    const int64_t width = table.map.width();
    float* w = scratch_.by_rel.data() + index * kRowsI * rel_stride_;
    for (int64_t r = 0; r < kRowsI; ++r) {
      float* row = w + r * rel_stride_;
      for (int64_t e = 0; e < kRelPad; ++e) {
        row[kRelPad] += row[e];
        row[kRelPad + width - 1] += row[kRelPad + width + e];
      }
    }
    for (int64_t c = 0; c < out_stride_; c += kColsI) {
      Product(w + kRelPad, 1, static_cast<size_t>(rel_stride_),
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
    const bool nothing = state.sum == 0.0F;
    const float inverse = nothing ? 0.0F : 1.0F / state.sum;
    float* x = o + r * out_stride_;
    SetScaled(inverse, x, s.value_dim, x);
    kernels::StoreRow(out, row, x, s.value_dim);
    if (lse != nullptr) {
      lse[row] = nothing ? kMinusInf : LogSumExp(state);
    }
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
    const bool pairs = PairRows::Fits(packed);
    if (pairs) scratch.pairs.BeginHead(packed, b, h, scratch.key_table);
    run.SetTables(&scratch.key_table, pairs ? &scratch.pairs : nullptr);
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
void ForwardF32(const Call& call, Tensor& out, float* lse, int threads) {
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const PackedTables tables(call, threads);
  tables.PackTables(0, s.q_heads);
  const int64_t units = tables.Units();
  const int64_t owned =
      threads == 1 ? units : std::max<int64_t>(units - threads, 0);
  Packed shared(tables);
  shared.Pack(owned, units - owned, /*with_values=*/true);
  // A key table is made once a head.
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

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_

// Fused forward attention: query blocks x key tiles with an online softmax.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/forward/forward.h"
#include "kernels/terms/dropout-inl.h"
#include "kernels/terms/score-inl.h"
#include "kernels/terms/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// A task holds the state of 96 queries of one head while it iterates over the
// keys: 8 blocks of 12 rows (or 16 of 6). Their outputs at D = 128 take 48 KiB;
// reading a key tile once per 96 queries costs a hundredth of the arithmetic.
constexpr int64_t kTaskQueries = 96;
static_assert(kTaskQueries == DisentangledRows::kQueries);

// Keys per tile: keys and values of 512 x 64 floats are 256 KiB, 512 x 128 are
// 512 KiB, well inside a 1 MiB L2; wider heads take half as many. The scores of
// one block, 12 x 512 floats, are 24 KiB and stay in L1.
inline int64_t TileKeys(int64_t depth, int64_t value_dim) {
  return depth + value_dim > 320 ? 256 : 512;
}

using kernels::CallResult;

// The state of one thread: its scratch, and room to pack a unit for itself.
class ForwardWorker {
 public:
  ForwardWorker(const PackedTables& tables, int64_t own_units,
                const CallResult& result)
      : own(tables, own_units, /*workers=*/1, Packed::Contents::kKeysAndValues),
        call_(tables.call),
        v_table_(tables.v_table.get()),
        result_(result),
        scorer_(tables),
        dropout_(call_),
        key_table_(tables),
        disentangled_(tables, key_table_),
        tile_(TileKeys(tables.depth, call_.sizes.value_dim)),
        out_stride_(PaddedCols(call_.sizes.value_dim)),
        offset_stride_(v_table_ == nullptr
                           ? 0
                           : AlignUp(v_table_->map.width(), kLanesI) +
                                 2 * kEndPad),
        blocks_(static_cast<size_t>(
            (std::min(kTaskQueries, call_.sizes.q_len) + kRowsI - 1) / kRowsI)),
        states_(blocks_.size() * kRows),
        operands_(Blocks() * scorer_.BlockFloats()),
        scores_(kRowsI * kLds),
        sums_(Blocks() * kRowsI * out_stride_),
        by_offset_(Blocks() * kRowsI * offset_stride_) {}

  // Computes the attention of queries [first, first + count) of (b, h), in
  // sorted order, over the packed keys.
  void Run(const Packed& packed, int64_t b, int64_t h, int64_t first,
           int64_t count) noexcept;

  Packed own;

 private:
  int64_t Blocks() const { return static_cast<int64_t>(blocks_.size()); }
  // Runs up to kTaskQueries queries.
  void RunQueries(int64_t b, int64_t h, int64_t first, int64_t count);
  void Tile(const Block& block, int64_t index, int64_t tile);
  void StoreWeights(const Block& block, int64_t index, int64_t tile);
  void MultiplyValues(const Block& block, int64_t tile, int64_t lo, int64_t hi,
                      const float* p, const float* rescale, float* out) const;
  void Finish(const Block& block, int64_t index);

  // A row stride of 512 floats would map every row to the same cache sets; one
  // more cache line spreads them. Constant, so that rows are fixed
  // displacements.
  static constexpr int64_t kLds = 512 + 16;

  const Call& call_;
  const PackedRows* const v_table_;  // nullptr if there is no value table
  const CallResult& result_;
  const Packed* packed_ = nullptr;
  Scorer scorer_;
  const DropoutTerm dropout_;
  KeyTable key_table_;
  DisentangledRows disentangled_;
  const int64_t tile_, out_stride_;
  const int64_t offset_stride_;  // 0 if there is no value table
  std::vector<Block> blocks_;
  std::vector<RowState> states_;
  FloatBuffer operands_;   // packed queries of the blocks
  FloatBuffer scores_;     // of one block and tile: [kRows][kLds]
  FloatBuffer sums_;       // weighted values: [rows][out_stride_]
  FloatBuffer by_offset_;  // weights by offset: [rows][offset_stride_]
};

inline void ForwardWorker::Run(const Packed& packed, int64_t b, int64_t h,
                               int64_t first, int64_t count) noexcept {
  packed_ = &packed;
  scorer_.SetKeys(packed, key_table_);
  if (packed.HasKeyTable()) {
    key_table_.Build(packed, b, h);
    disentangled_.BeginHead(b, h);
  }
  for (int64_t q = 0; q < count && !Interrupted(); q += kTaskQueries) {
    RunQueries(b, h, first + q, std::min(kTaskQueries, count - q));
  }
}

inline void ForwardWorker::RunQueries(int64_t b, int64_t h, int64_t first,
                                      int64_t count) {
  const int64_t n_blocks = (count + kRowsI - 1) / kRowsI;
  std::fill_n(sums_.data(), n_blocks * kRowsI * out_stride_, 0.0F);
  std::fill_n(by_offset_.data(), n_blocks * kRowsI * offset_stride_, 0.0F);
  std::ranges::fill(states_, RowState());
  const bool straight = disentangled_.BeginQueries(
      first, count, call_.AnyVisible(b, first, count));
  scorer_.SetDisentangled(straight ? &disentangled_ : nullptr);
  Interval any;
  for (int64_t n = 0; n < n_blocks; ++n) {
    Block& block = blocks_[static_cast<size_t>(n)];
    scorer_.Prepare(b, h, first + n * kRowsI,
                    std::min(kRowsI, count - n * kRowsI),
                    operands_.data() + n * scorer_.BlockFloats(), block);
    any = Around(any, block.any);
  }
  const int64_t begin = AlignDown(any.begin, tile_);
  for (int64_t tile = begin; tile < any.end; tile += tile_) {
    for (int64_t n = 0; n < n_blocks; ++n) {
      Tile(blocks_[static_cast<size_t>(n)], n, tile);
    }
  }
  for (int64_t n = 0; n < n_blocks; ++n) {
    const Block& block = blocks_[static_cast<size_t>(n)];
    Finish(block, n);
    if (result_.weights == nullptr) continue;
    for (int64_t tile = begin; tile < any.end; tile += tile_) {
      StoreWeights(block, n, tile);
    }
  }
}

inline void ForwardWorker::Tile(const Block& block, int64_t index,
                                int64_t tile) {
  const TileRows look = scorer_.Look(block, {tile, tile + tile_});
  const Interval any = look.any;
  if (any.empty()) return;
  const int64_t lo = AlignDown(any.begin, kColsI);
  float* s = scores_.data();
  float max[kRows];
  scorer_.Scores<kLds>(block, look, tile, lo, any.end, s, max);

  float rescale[kRows];
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* row = s + r * kLds - tile;  // indexed by key
    const Interval seen = look.seen[r];
    rescale[r] = 1.0F;
    // Keys that the block sees but this row does not have weight 0.
    if (seen.empty()) {
      std::fill(row + any.begin, row + any.end, 0.0F);
      continue;
    }
    std::fill(row + any.begin, row + seen.begin, 0.0F);
    RowState& state = states_[static_cast<size_t>(index * kRowsI + r)];
    rescale[r] = OnlineSoftmaxRow(row + seen.begin, seen.size(), max[r], state);
    std::fill(row + seen.end, row + any.end, 0.0F);
    if (look.any_gaps) scorer_.SetHidden(block, look, r, 0.0F, row);
    if (dropout_.present()) {
      dropout_.Drop(block.b, block.h, block.first + r, seen, row);
    }
    if (offset_stride_ > 0) {
      float* sums = by_offset_.data() + (index * kRowsI + r) * offset_stride_;
      if (rescale[r] != 1.0F) {
        SetScaled(rescale[r], sums, offset_stride_, sums);
      }
      SumByOffset(v_table_->map, block.position[r], call_.Keys(block.b), seen,
                  row, sums);
    }
  }
  MultiplyValues(block, tile, any.begin, any.end, s, rescale,
                 sums_.data() + index * kRowsI * out_stride_);
}

inline void ForwardWorker::MultiplyValues(const Block& block, int64_t tile,
                                          int64_t lo, int64_t hi,
                                          const float* p, const float* rescale,
                                          float* out) const {
  if (!packed_->ValuesFinite(block.b, block.h)) {
    // 0 * inf is NaN, so zero weights of keys that a row does not see must not
    // be multiplied by non-finite values: row by row, skip zero weights.
    for (int64_t r = 0; r < block.count; ++r) {
      float* o = out + r * out_stride_;
      for (int64_t d = 0; d < call_.sizes.value_dim; ++d) o[d] *= rescale[r];
      const int64_t end = std::min(hi, block.seen[r].end);
      for (int64_t j = std::max(lo, block.seen[r].begin); j < end; ++j) {
        const float weight = p[r * kLds + j - tile];
        if (weight == 0.0F) continue;
        for (int64_t d = 0; d < call_.sizes.value_dim; ++d) {
          const int64_t panel = AlignDown(d, kColsI);
          o[d] +=
              weight * packed_->Values(block.b, block.h, j, panel)[d - panel];
        }
      }
    }
    return;
  }
  for (int64_t c = 0; c < out_stride_; c += kColsI) {
    Product(p + (lo - tile), 1, Fixed<kLds>(),
            packed_->Values(block.b, block.h, lo, c), kCols,
            static_cast<size_t>(hi - lo),
            ScaleAddTo{rescale, out + c, static_cast<size_t>(out_stride_)});
  }
}

inline void ForwardWorker::Finish(const Block& block, int64_t index) {
  const CallSizes& s = call_.sizes;
  float* o = sums_.data() + index * kRowsI * out_stride_;
  if (offset_stride_ > 0) {
    // out += weights by offset * Tv
    const int64_t width = v_table_->map.width();
    float* w = by_offset_.data() + index * kRowsI * offset_stride_;
    for (int64_t r = 0; r < kRowsI; ++r) {
      FoldEnds(w + r * offset_stride_, width);
    }
    for (int64_t c = 0; c < out_stride_; c += kColsI) {
      Product(w + kEndPad, 1, static_cast<size_t>(offset_stride_),
              v_table_->Head(block.h).Panel(c), kCols,
              static_cast<size_t>(width),
              AddTo{o + c, static_cast<size_t>(out_stride_)});
    }
  }
  const double sink = call_.Sink(block.h);
  for (int64_t r = 0; r < block.count; ++r) {
    RowState& state = states_[static_cast<size_t>(index * kRowsI + r)];
    const float rescale = JoinSink(sink, state) * dropout_.gain();
    const int64_t source =
        call_.Queries(block.b).source[static_cast<size_t>(block.first + r)];
    const int64_t row = (block.b * s.q_heads + block.h) * s.q_len + source;
    float* x = o + r * out_stride_;
    SetScaled(rescale * InverseSum(state), x, s.value_dim, x);
    RotateValues(call_,
                 packed_->OutputAngles(block.b, block.h, block.first + r), x,
                 /*back=*/true);
    kernels::StoreRow(result_.out, block.b, block.h, source, x, s.value_dim);
    if (result_.lse != nullptr) result_.lse[row] = LogSumExp(state);
  }
}

// Stores the weights of a finished block for a tile of keys, recomputing the
// scores.
inline void ForwardWorker::StoreWeights(const Block& block, int64_t index,
                                        int64_t tile) {
  const CallSizes& s = call_.sizes;
  const TileRows look = scorer_.Look(block, {tile, tile + tile_});
  if (look.any.empty()) return;
  float* scores = scores_.data();
  float max[kRows];
  scorer_.Scores<kLds>(block, look, tile, AlignDown(look.any.begin, kColsI),
                       look.any.end, scores, max);
  const std::vector<int64_t>& queries = call_.Queries(block.b).source;
  const int64_t* order = call_.Keys(block.b).Order();
  for (int64_t r = 0; r < block.count; ++r) {
    const Interval seen = look.seen[r];
    if (seen.empty()) continue;
    float* row = scores + r * kLds - tile;  // indexed by key
    const RowState& last = states_[static_cast<size_t>(index * kRowsI + r)];
    // First relative to the tile's own reference, then to that of the whole
    // row.
    RowState state;
    OnlineSoftmaxRow(row + seen.begin, seen.size(), max[r], state);
    scorer_.SetHidden(block, look, r, 0.0F, row);
    if (dropout_.present()) {
      dropout_.Drop(block.b, block.h, block.first + r, seen, row);
    }
    const float factor = state.ref == kMinusInf
                             ? 0.0F
                             : PowerOfTwo(state.ref - last.ref) *
                                   InverseSum(last) * dropout_.gain();
    const int64_t to = (block.b * s.q_heads + block.h) * s.q_len +
                       queries[static_cast<size_t>(block.first + r)];
    StoreWeightRow(row, seen, factor, order, result_.weights + to * s.k_len);
  }
}

// Most units are one task each: a thread packs the keys and values of a unit
// and uses them while they are in its own cache. The last unit of each thread
// is packed beforehand and split among all threads, so that all finish
// together.
void ForwardF32(const Call& call, const CallResult& result) {
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const int threads = call.plan.threads;
  const PackedTables tables(call);
  const int64_t units = tables.Units();
  const int64_t owned =
      threads == 1 ? units : std::max<int64_t>(units - threads, 0);
  // All memory is allocated before anything is computed.
  tables.ReserveTables(s.q_heads);
  Packed shared(tables, units - owned, threads,
                Packed::Contents::kKeysAndValues);
  std::vector<std::unique_ptr<ForwardWorker>> workers;
  for (int n = 0; n < threads; ++n) {
    workers.push_back(std::make_unique<ForwardWorker>(
        tables, /*own_units=*/std::min<int64_t>(owned, 1), result));
  }
  result.ClearWeights(s);
  tables.PackTables(0, s.q_heads);
  shared.Pack(owned, units - owned);
  // A key table is built once per head, so a task takes all queries of the
  // head.
  const int64_t queries = tables.HasKeyTable() ? s.q_len : kTaskQueries;
  const int64_t parts = (s.q_len + queries - 1) / queries;
  const int64_t tasks = owned + (units - owned) * tables.group * parts;
  ParallelFor(tasks, threads, [&](int64_t task, int number) noexcept {
    ForwardWorker& worker = *workers[static_cast<size_t>(number)];
    if (task < owned) {
      worker.own.Pack(task, 1);
      for (int64_t n = 0; n < tables.group; ++n) {
        worker.Run(worker.own, task / s.kv_heads,
                   task % s.kv_heads * tables.group + n, 0, s.q_len);
      }
      return;
    }
    // Last queries first: under a causal mask they take longest.
    const int64_t part = parts - 1 - (task - owned) % parts;
    const int64_t head = owned * tables.group + (task - owned) / parts;
    worker.Run(shared, head / s.q_heads, head % s.q_heads, part * queries,
               std::min(queries, s.q_len - part * queries));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_INL_H_

// Attention of few queries over many keys: keys and values stream once from
// memory, shared by all rows (the queries of every head of a group), and the
// keys are split into chunks whose partial softmaxes are merged in order.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#endif

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/decode/decode.h"
#include "kernels/decode/score-inl.h"
#include "kernels/terms/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Rows of one pass over the keys: with more, arithmetic rather than memory is
// the bottleneck, and only the scratch would grow.
constexpr int64_t kPassRows = 32;

// Keys per chunk, from the shape alone: about 128 chunks keep 64 threads busy
// to the end, and a chunk of 256 keys takes ten times as long as scheduling and
// merging it.
inline int64_t ChunkKeys(const CallSizes& s) {
  const int64_t even = s.batch * s.kv_heads * s.k_len / 128;
  return std::max(kTileKeys, (even + kTileKeys - 1) / kTileKeys * kTileKeys);
}

// Partial results of the chunks of a key head, before they are merged.
struct ChunkSums {
  float* out;        // [chunks][rows][value_pad]
  RowState* states;  // [chunks][rows]
  // References of the weights of each tile, if they are returned:
  // [tiles][rows].
  float* refs;
};

// One chunk of the keys of one key head.
class ChunkTask {
 public:
  ChunkTask(const DecodePass& pass, Scratch& scratch, int64_t b, int64_t kv,
            float* weights)
      : pass_(pass),
        scratch_(scratch),
        scorer_(pass, scratch, b, kv),
        weights_(weights) {}

  // Computes attention over keys [begin, end) into the sums of a chunk.
  void Attend(int64_t begin, int64_t end, const ChunkSums& sums) noexcept;

 private:
  void AddValues(int64_t tile, Interval keys, int64_t r, int64_t count,
                 float* out);
  void AddValuesOfWeights(int64_t tile, Interval keys, int64_t r, float* out);
  bool ValuesFinite(Interval keys);
  void PrefetchValues(int64_t first, int64_t r) const;
  void AddTableValues(int64_t r, Interval keys, const float* p, float* out);
  // For integer values in place, multiplies the weights p, indexed by key, by
  // the scales of the values.
  void ScaleWeights(Interval keys, float* p) const {
    const float* scales = pass_.call.v.Scales(scorer_.b(), scorer_.kv());
    if (scales == nullptr || !pass_.direct_values) return;
    MultiplyByScales(/*factor=*/1.0F, scales,
                     pass_.call.Keys(scorer_.b()).Order(), keys.begin, keys.end,
                     p);
  }
  // Stores the weights p of row r, indexed by key, still relative to the
  // reference of their tile.
  void StoreWeights(int64_t r, Interval keys, const float* p) const {
    StoreWeightRow(p, keys, /*factor=*/1.0F,
                   pass_.call.Keys(scorer_.b()).Order(),
                   weights_ + pass_.ResultRow(scorer_.b(), scorer_.kv(), r) *
                                  pass_.call.sizes.k_len);
  }

  const DecodePass& pass_;
  Scratch& scratch_;
  ChunkScorer scorer_;
  float* const weights_;  // of the result, or nullptr
};

inline void ChunkTask::Attend(int64_t begin, int64_t end,
                              const ChunkSums& sums) noexcept {
  float* out = sums.out;
  std::fill_n(out, pass_.rows * pass_.value_pad, 0.0F);
  // In thread-local scratch until the end, since tasks of different threads
  // share cache lines of `states`.
  RowState* now = scratch_.states.data();
  std::fill_n(now, pass_.rows, RowState());
  for (int64_t tile = begin; tile < end; tile += kTileKeys) {
    float* refs = nullptr;
    if (weights_ != nullptr) {
      refs = sums.refs + tile / kTileKeys * pass_.rows;
      std::fill_n(refs, pass_.rows, kMinusInf);
    }
    // The keys of the tile that any row sees, and those that every row sees.
    // Without a pair mask the rows of all heads see the same.
    const int64_t tile_end = std::min(end, tile + kTileKeys);
    Interval any, all{tile, tile_end};
    const int64_t looks = pass_.call.hides ? pass_.rows : pass_.count;
    bool gaps = false;
    for (int64_t n = 0; n < looks; ++n) {
      const kernels::Glimpse look = scorer_.Look(n, tile, tile_end);
      const Interval seen = look.seen;
      gaps |= look.gaps;
      all.begin = std::max(all.begin, seen.begin);
      all.end = std::min(all.end, seen.end);
      any = Around(any, seen);
    }
    if (any.empty()) continue;
    // 0 * inf is NaN, so a zero weight must not be multiplied by a value that
    // its row does not see or drops.
    const bool spoiled = pass_.dropout.present() && !ValuesFinite(any);
    if (gaps || spoiled) all = {tile, tile};
    scorer_.Scores(tile, any);
    for (int64_t r = 0; r < pass_.rows; ++r) {
      PrefetchValues(any.begin, r);
      const kernels::Glimpse look = scorer_.Look(r, tile, tile_end);
      const Interval seen = look.seen;
      if (seen.empty()) continue;
      float* s = scratch_.scores + r * kScoreStride;
      scorer_.AddTerms(r, tile, look, s);
      float* p = s - tile;  // indexed by key
      float* o = out + r * pass_.value_pad;
      const float rescale =
          OnlineSoftmaxRow(p + seen.begin, seen.size(),
                           RowMax(p + seen.begin, seen.size()), now[r]);
      if (rescale != 1.0F) SetScaled(rescale, o, pass_.value_pad, o);
      scorer_.Clear(r, look, p);
      if (weights_ != nullptr) {
        refs[r] = now[r].ref;
        StoreWeights(r, seen, p);
      }
      if (pass_.v_rows) AddTableValues(r, seen, p + seen.begin, o);
      ScaleWeights(seen, p);
    }
    // Keys that all rows see are added for all rows at once, others row by row.
    if (all.begin < all.end) AddValues(tile, all, 0, pass_.rows, out);
    for (int64_t r = 0; r < pass_.rows; ++r) {
      const kernels::Glimpse look = scorer_.Look(r, tile, tile_end);
      if (look.gaps || spoiled) {
        AddValuesOfWeights(tile, look.seen, r, out);
        continue;
      }
      int64_t from = look.seen.begin;
      if (!look.seen.empty() && all.begin < all.end) {
        AddValues(tile, {from, all.begin}, r, 1, out);
        from = all.end;
      }
      AddValues(tile, {from, look.seen.end}, r, 1, out);
    }
  }
  std::copy_n(now, pass_.rows, sums.states);
}

// Whether the values of `keys` are finite.
inline bool ChunkTask::ValuesFinite(Interval keys) {
  const int64_t* source = pass_.call.Keys(scorer_.b()).Order();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    StageRow(pass_.call.v, scorer_.b(), scorer_.kv(),
             source == nullptr ? j : source[j], pass_.value_pad,
             scratch_.table_row);
    if (!Finite(scratch_.table_row, pass_.value_pad)) return false;
  }
  return true;
}

// Keeps the memory system busy during the softmax: prefetches the values after
// those that AddValues of the previous tile has prefetched, a part of them
// before each row r.
inline void ChunkTask::PrefetchValues(int64_t first, int64_t r) const {
  if (!pass_.direct_values) return;
  const Rows& v = pass_.call.v;
  const int64_t* source = pass_.call.Keys(scorer_.b()).Order();
  WithStoredType(v.dtype(), [&]<typename T>() {
    const int64_t count = RowsOf<T>::FarRows(pass_.value_pad);
    const int64_t end = count * (r + 1) / pass_.rows;
    const int64_t last = pass_.call.Keys(scorer_.b()).size() - 1;
    const T* here = v.At<T>(scorer_.b(), scorer_.kv(),
                            source == nullptr ? first : source[first]);
    for (int64_t n = count * r / pass_.rows; n < end; ++n) {
      const T* row = v.in_blocks() ? v.At<T>(scorer_.b(), scorer_.kv(),
                                             std::min(first + count + n, last))
                                   : here + (count + n) * v.row_stride();
      for (int64_t d = 0; d < pass_.value_pad; d += kLineOf<T>) {
        Prefetch<Level::kL2>(row + d);
      }
    }
  });
}

// out[r ..] += p v over `keys`, for `count` rows.
inline void ChunkTask::AddValues(int64_t tile, Interval keys, int64_t r,
                                 int64_t count, float* out) {
  if (keys.begin >= keys.end) return;
  const Call& call = pass_.call;
  const float* p = scratch_.scores + r * kScoreStride + (keys.begin - tile);
  out += r * pass_.value_pad;
  const int64_t* source = call.Keys(scorer_.b()).Order();
  if (pass_.direct_values) {
    WithStoredType(call.v.dtype(), [&]<typename T>() {
      ForStretches<T>(call.v, scorer_.b(), scorer_.kv(), source,
                      call.Keys(scorer_.b()).size(), keys.begin, keys.end,
                      [&](const RowsOf<T>& values, int64_t j, int64_t n) {
                        const float* weights = p + (j - keys.begin);
#if LOCUS_INT8_PRODUCTS
                        if constexpr (std::is_same_v<T, int8_t>) {
                          if (pass_.integer_values) {
                            WithPairs(pass_.fused_pairs, [&](auto fused) {
                              AddIntegersWeighted<fused(), /*kPrefetch=*/true>(
                                  values, 0, n, weights, kScoreStride, count,
                                  pass_.value_pad, out, pass_.value_pad);
                            });
                            return;
                          }
                        }
#endif
                        AddWeighted</*kPrefetch=*/true>(
                            values, 0, n, weights, kScoreStride, count,
                            pass_.value_pad, out, pass_.value_pad);
                      });
    });
    return;
  }
  for (int64_t j = keys.begin; j < keys.end; j += kKeysInL1) {
    const int64_t n = std::min(kKeysInL1, keys.end - j);
    for (int64_t i = 0; i < n; ++i) {
      float* row = scratch_.values + i * pass_.value_pad;
      StageRow(call.v, scorer_.b(), scorer_.kv(),
               source == nullptr ? j + i : source[j + i], pass_.value_pad, row);
      pass_.RotateValue(scorer_.b(), scorer_.kv(), j + i, row);
    }
    const RowsOf<float> values{scratch_.values, pass_.value_pad};
    AddWeighted</*kPrefetch=*/false>(values, 0, n, p + (j - keys.begin),
                                     kScoreStride, count, pass_.value_pad, out,
                                     pass_.value_pad);
  }
}

// AddValues for one row, skipping keys with weight 0.
inline void ChunkTask::AddValuesOfWeights(int64_t tile, Interval keys,
                                          int64_t r, float* out) {
  const float* p = scratch_.scores + r * kScoreStride - tile;  // indexed by key
  for (int64_t j = keys.begin; j < keys.end;) {
    const int64_t first = j;
    while (j < keys.end && p[j] != 0.0F) ++j;
    AddValues(tile, {first, j}, r, 1, out);
    while (j < keys.end && p[j] == 0.0F) ++j;
  }
}

// out += sum p_j Tv[b_j]: consecutive keys with the same bucket share a row of
// the table.
inline void ChunkTask::AddTableValues(int64_t r, Interval keys, const float* p,
                                      float* out) {
  const BucketTable& table = *pass_.call.terms.v_table;
  const int64_t h = pass_.Head(scorer_.kv(), r);
  for (int64_t j = keys.begin; j < keys.end;) {
    const int32_t bucket = scorer_.Bucket(table.buckets, pass_.v_map, r, j);
    float weight = 0.0F;
    do {
      weight += p[j - keys.begin];
      ++j;
    } while (j < keys.end &&
             bucket == scorer_.Bucket(table.buckets, pass_.v_map, r, j));
    StageRow(*pass_.v_rows, 0, table.rows.size(0) == 1 ? 0 : h, bucket,
             pass_.value_pad, scratch_.table_row);
    if (pass_.paired_values) {
      ToParts(pass_.value_pad, scratch_.table_row);
    }
    AddScaled(weight, scratch_.table_row, pass_.value_pad, out);
  }
}

// The first task of each share of `tasks`, and the total. A share is a range of
// adjacent chunks for one thread, since what a chunk prefetches past its end is
// the beginning of the next one. Shares get smaller, so that threads finish
// together.
inline std::vector<int64_t> Shares(int64_t tasks, int threads) {
  std::vector<int64_t> starts = {0};
  while (starts.back() < tasks) {
    const int64_t share = (tasks - starts.back()) / (int64_t{4} * threads);
    starts.push_back(starts.back() + std::max<int64_t>(share, 1));
  }
  return starts;
}

// The partial results of all chunks of all key heads.
class Partials {
 public:
  // With room for `most` queries per pass.
  Partials(const DecodePass& pass, int64_t most, int64_t chunk, bool weights)
      : chunks((pass.call.sizes.k_len + chunk - 1) / chunk), pass_(pass) {
    const CallSizes& s = pass.call.sizes;
    const int64_t rows = s.batch * s.q_heads * most;
    out_.Resize(chunks * rows * pass.value_pad);
    states_.resize(static_cast<size_t>(chunks * rows));
    if (!weights) return;
    tiles_ = (s.k_len + kTileKeys - 1) / kTileKeys;
    refs_.Resize(tiles_ * rows);
  }

  // The partial results of a key head from chunk n on; references from its
  // first tile on.
  ChunkSums Of(int64_t head, int64_t n = 0) {
    const int64_t row = (head * chunks + n) * pass_.rows;
    return {.out = out_.data() + row * pass_.value_pad,
            .states = states_.data() + row,
            .refs = refs_.data() + head * tiles_ * pass_.rows};
  }

  const int64_t chunks;  // per key head

 private:
  const DecodePass& pass_;
  int64_t tiles_ = 0;
  FloatBuffer out_, refs_;
  std::vector<RowState> states_;
};

// Merges the chunks of one key head.
class ChunkJoin {
 public:
  ChunkJoin(const DecodePass& pass, const ChunkSums& sums, int64_t chunks,
            const kernels::CallResult& result)
      : pass_(pass), sums_(sums), chunks_(chunks), result_(result) {}

  // Merges the chunks of row r in order and stores its result; `sum` is
  // scratch, [value_pad].
  void Row(int64_t b, int64_t kv, int64_t r, float* sum) const noexcept;

 private:
  // Rescales the weights of row r, which are relative to the references of
  // their tiles, to the final one.
  void FinishWeights(int64_t b, int64_t r, const RowState& state,
                     float* weights) const;

  const DecodePass& pass_;
  const ChunkSums sums_;
  const int64_t chunks_;
  const kernels::CallResult& result_;
};

inline void ChunkJoin::Row(int64_t b, int64_t kv, int64_t r,
                           float* sum) const noexcept {
  const CallSizes& s = pass_.call.sizes;
  float ref = kMinusInf;
  for (int64_t c = 0; c < chunks_; ++c) {
    ref = std::max(ref, sums_.states[c * pass_.rows + r].ref);
  }
  std::fill_n(sum, pass_.value_pad, 0.0F);
  float total = 0.0F;
  for (int64_t c = 0; c < chunks_; ++c) {
    const RowState& part = sums_.states[c * pass_.rows + r];
    if (part.ref == kMinusInf && part.sum == 0.0F) continue;
    const float rescale = part.ref == ref ? 1.0F : PowerOfTwo(part.ref - ref);
    total += rescale * part.sum;
    AddScaled(rescale, sums_.out + (c * pass_.rows + r) * pass_.value_pad,
              pass_.value_pad, sum);
  }
  const int64_t row = pass_.ResultRow(b, kv, r);
  if (pass_.paired_values) FromParts(pass_.value_pad, sum);
  RowState state{.ref = ref, .sum = total};
  const float rescale = JoinSink(pass_.call.Sink(pass_.Head(kv, r)), state) *
                        pass_.dropout.gain();
  SetScaled(rescale * InverseSum(state), sum, pass_.value_pad, sum);
  pass_.RotateOutput(b, kv, pass_.Query(r), sum);
  kernels::StoreRow(result_.out, b, pass_.Head(kv, r),
                    pass_.call.plan.tokens.QuerySource(b, pass_.Query(r)), sum,
                    s.value_dim);
  if (result_.lse != nullptr) result_.lse[row] = LogSumExp(state);
  if (result_.weights != nullptr) {
    FinishWeights(b, r, state, result_.weights + row * s.k_len);
  }
}

inline void ChunkJoin::FinishWeights(int64_t b, int64_t r,
                                     const RowState& state,
                                     float* weights) const {
  const int64_t keys = pass_.call.Keys(b).size();
  const int64_t* order = pass_.call.Keys(b).Order();
  const float share = InverseSum(state) * pass_.dropout.gain();
  for (int64_t tile = 0; tile < keys; tile += kTileKeys) {
    const Interval here{tile, std::min(tile + kTileKeys, keys)};
    const float ref = sums_.refs[tile / kTileKeys * pass_.rows + r];
    const float factor =
        share * (ref == state.ref ? 1.0F : PowerOfTwo(ref - state.ref));
    if (order == nullptr) {
      StoreWeightRow(weights, here, factor, /*order=*/nullptr, weights);
      continue;
    }
    for (int64_t j = here.begin; j < here.end; ++j) {
      float& weight = weights[order[j]];
      if (weight != 0.0F) weight *= factor;
    }
  }
}

}  // namespace stream

void DecodeF32(const Call& call, const kernels::CallResult& result) {
  const CallSizes& s = call.sizes;
  const int threads = call.plan.threads;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const int64_t heads = s.batch * s.kv_heads;
  const int64_t chunk = stream::ChunkKeys(s);
  const int64_t queries =
      std::max<int64_t>(1, stream::kPassRows / (s.q_heads / s.kv_heads));
  // All memory is allocated before anything is computed.
  const int64_t most = std::min(queries, s.q_len);
  stream::DecodePass pass(call, most);
  stream::Partials partials(pass, most, chunk, result.weights != nullptr);
  const int64_t chunks = partials.chunks;
  std::vector<stream::Scratch> workers;
  for (int n = 0; n < threads; ++n) {
    workers.emplace_back(pass, pass.group * most);
  }
  const std::vector<int64_t> starts = stream::Shares(heads * chunks, threads);
  result.ClearWeights(s);
  for (int64_t first = 0; first < s.q_len; first += queries) {
    pass.Begin(first, std::min(queries, s.q_len - first));
    const auto attend = [&](int64_t task, stream::Scratch& scratch) {
      const int64_t head = task / chunks, at = task % chunks * chunk;
      const int64_t b = head / s.kv_heads;
      stream::ChunkTask run(pass, scratch, b, head % s.kv_heads,
                            result.weights);
      run.Attend(at, std::min(at + chunk, call.Keys(b).size()),
                 partials.Of(head, task % chunks));
    };
    const auto attend_share = [&](int64_t share, int worker) noexcept {
      const size_t n = static_cast<size_t>(share);
      for (int64_t task = starts[n]; task < starts[n + 1]; ++task) {
        attend(task, workers[static_cast<size_t>(worker)]);
      }
    };
    ParallelFor(static_cast<int64_t>(starts.size()) - 1, threads, attend_share);
    const auto join = [&](int64_t head, int worker) noexcept {
      const stream::ChunkJoin rows(pass, partials.Of(head), chunks, result);
      for (int64_t r = 0; r < pass.rows; ++r) {
        rows.Row(head / s.kv_heads, head % s.kv_heads, r,
                 workers[static_cast<size_t>(worker)].sum);
      }
    };
    ParallelFor(heads, threads, join);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_

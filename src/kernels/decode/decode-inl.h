// Attention of few queries over many keys: keys and values stream once from
// memory, shared by all rows (the queries of every head of a group), and the
// keys are split into chunks whose partial softmaxes are joined in order.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_
#endif

#include <limits>
#include <vector>

#include "kernels/decode/decode.h"
#include "kernels/decode/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Rows of one pass over the keys: beyond this the arithmetic, not the memory,
// sets the pace, and more would only make the scratch larger.
constexpr int64_t kPassRows = 32;

// Keys per chunk, from the shape alone: about 128 chunks keep 64 threads busy
// and the last of them short, and a chunk of 256 keys takes ten times as long
// as handing it out and joining it.
inline int64_t ChunkKeys(const CallSizes& s) {
  const int64_t even = s.batch * s.kv_heads * s.k_len / 128;
  return std::max(kTileKeys, (even + kTileKeys - 1) / kTileKeys * kTileKeys);
}

// One chunk of the keys of one key head.
class ChunkTask {
 public:
  ChunkTask(const DecodePass& pass, Scratch& scratch, int64_t b, int64_t kv)
      : pass_(pass), scratch_(scratch), scorer_(pass, scratch, b, kv) {}

  // Attends keys [begin, end): out [rows][value_pad], states [rows].
  void Attend(int64_t begin, int64_t end, float* out, RowState* states);

 private:
  void AddValues(int64_t tile, Interval keys, int64_t r, int64_t count,
                 float* out);
  void FetchValues(int64_t first, int64_t r) const;
  void AddTableValues(int64_t r, Interval keys, const float* p, float* out);

  const DecodePass& pass_;
  Scratch& scratch_;
  ChunkScorer scorer_;
};

inline void ChunkTask::Attend(int64_t begin, int64_t end, float* out,
                              RowState* states) {
  std::fill_n(out, pass_.rows * pass_.value_pad, 0.0F);
  // A thread's own until the end: tasks of two threads share lines of `states`.
  std::vector<RowState>& now = scratch_.states;
  now.assign(static_cast<size_t>(pass_.rows), RowState());
  for (int64_t tile = begin; tile < end; tile += kTileKeys) {
    // What any row sees of the tile, and what every row sees.
    const int64_t tile_end = std::min(end, tile + kTileKeys);
    Interval any{tile_end, tile}, all{tile, tile_end};
    for (int64_t n = 0; n < pass_.count; ++n) {
      const Interval seen = scorer_.Seen(n, tile, tile_end);
      all.begin = std::max(all.begin, seen.begin);
      all.end = std::min(all.end, seen.end);
      if (seen.begin == seen.end) continue;
      any.begin = std::min(any.begin, seen.begin);
      any.end = std::max(any.end, seen.end);
    }
    if (any.begin >= any.end) continue;
    scorer_.Scores(tile, any);
    for (int64_t r = 0; r < pass_.rows; ++r) {
      FetchValues(any.begin, r);
      const Interval seen = scorer_.Seen(r, tile, tile_end);
      if (seen.begin == seen.end) continue;
      float* p = scratch_.scores.data() + r * kScoreStride;
      scorer_.AddTerms(r, tile, seen, p);
      p += seen.begin - tile;
      float* o = out + r * pass_.value_pad;
      const float rescale = OnlineSoftmaxRow(
          p, seen.size(), RowMax(p, seen.size()), now[static_cast<size_t>(r)]);
      if (rescale != 1.0F) SetScaled(rescale, o, pass_.value_pad, o);
      if (pass_.v_rows) AddTableValues(r, seen, p, o);
    }
    // 0 * inf is NaN: a weight of zero must not meet a value that its row does
    // not see. All rows together where all see; at the borders one by one.
    if (all.begin < all.end) AddValues(tile, all, 0, pass_.rows, out);
    for (int64_t r = 0; r < pass_.rows; ++r) {
      const Interval seen = scorer_.Seen(r, tile, tile_end);
      const bool split = all.begin < all.end;
      const Interval before{seen.begin, split ? all.begin : seen.end};
      AddValues(tile, before, r, 1, out);
      if (split) AddValues(tile, {all.end, seen.end}, r, 1, out);
    }
  }
  std::ranges::copy(now, states);
}

// Keeps memory busy while the softmax computes: asks for the values behind
// those that the sums of the previous tile have asked for, a part of them
// before each row r.
inline void ChunkTask::FetchValues(int64_t first, int64_t r) const {
  if (!pass_.direct_values) return;
  const Rows& v = pass_.call.v;
  const int64_t* source = pass_.call.Keys(scorer_.b()).Order();
  WithType(v.dtype(), [&]<typename T>() {
    const RowsOf<T> rows{v.Head<T>(scorer_.b(), scorer_.kv()), v.row_stride(),
                         source};
    const int64_t count = rows.FarRows(pass_.value_pad);
    const T* far = rows[first] + rows.Far(pass_.value_pad);
    const int64_t end = count * (r + 1) / pass_.rows;
    for (int64_t n = count * r / pass_.rows; n < end; ++n) {
      for (int64_t d = 0; d < pass_.value_pad; d += kLineOf<T>) {
        Fetch<Level::kL2>(far + n * rows.stride + d);
      }
    }
  });
}

// out[r ..] += p v over keys for `count` rows.
inline void ChunkTask::AddValues(int64_t tile, Interval keys, int64_t r,
                                 int64_t count, float* out) {
  if (keys.begin >= keys.end) return;
  const Call& call = pass_.call;
  const float* p =
      scratch_.scores.data() + r * kScoreStride + (keys.begin - tile);
  out += r * pass_.value_pad;
  const int64_t* source = call.Keys(scorer_.b()).Order();
  if (pass_.direct_values) {
    WithType(call.v.dtype(), [&]<typename T>() {
      const RowsOf<T> values{call.v.Head<T>(scorer_.b(), scorer_.kv()),
                             call.v.row_stride(), source};
      AddWeighted</*kFetch=*/true>(values, keys.begin, keys.end, p,
                                   kScoreStride, count, pass_.value_pad, out,
                                   pass_.value_pad);
    });
    return;
  }
  scratch_.values.Resize(kKeysInL1 * pass_.value_pad);
  for (int64_t j = keys.begin; j < keys.end; j += kKeysInL1) {
    const int64_t n = std::min(kKeysInL1, keys.end - j);
    for (int64_t i = 0; i < n; ++i) {
      StageRow(call.v, scorer_.b(), scorer_.kv(),
               source == nullptr ? j + i : source[j + i], pass_.value_pad,
               scratch_.values.data() + i * pass_.value_pad);
    }
    const RowsOf<float> values{scratch_.values.data(), pass_.value_pad,
                               nullptr};
    AddWeighted</*kFetch=*/false>(values, 0, n, p + (j - keys.begin),
                                  kScoreStride, count, pass_.value_pad, out,
                                  pass_.value_pad);
  }
}

// out += sum p_j Tv[b_j]: keys of one bucket in a row share a row of the table.
inline void ChunkTask::AddTableValues(int64_t r, Interval keys, const float* p,
                                      float* out) {
  const BucketTable& table = *pass_.call.terms.v_table;
  const int64_t h = pass_.Head(scorer_.kv(), r);
  scratch_.table_row.Resize(pass_.value_pad);
  for (int64_t j = keys.begin; j < keys.end;) {
    const int32_t bucket = scorer_.Bucket(table.buckets, pass_.v_map, r, j);
    float weight = 0.0F;
    do {
      weight += p[j - keys.begin];
      ++j;
    } while (j < keys.end &&
             bucket == scorer_.Bucket(table.buckets, pass_.v_map, r, j));
    StageRow(*pass_.v_rows, 0, table.rows.size(0) == 1 ? 0 : h, bucket,
             pass_.value_pad, scratch_.table_row.data());
    if (pass_.paired_values) {
      ToParts(pass_.value_pad, scratch_.table_row.data());
    }
    AddScaled(weight, scratch_.table_row.data(), pass_.value_pad, out);
  }
}

// Where the shares of `tasks` begin, and the end of the last. Chunks that lie
// side by side go to one thread: what it asks for past the end of one is the
// beginning of its next. Shares become smaller, so that threads end together.
inline std::vector<int64_t> Shares(int64_t tasks, int threads) {
  std::vector<int64_t> starts = {0};
  while (starts.back() < tasks) {
    const int64_t share = (tasks - starts.back()) / (int64_t{4} * threads);
    starts.push_back(starts.back() + std::max<int64_t>(share, 1));
  }
  return starts;
}

// Joins the chunks of row r in order and writes its result.
inline void JoinRow(const DecodePass& pass, int64_t b, int64_t kv, int64_t r,
                    const RowState* states, const float* parts, int64_t chunks,
                    Tensor& out, float* lse) {
  const CallSizes& s = pass.call.sizes;
  float ref = kMinusInf;
  for (int64_t c = 0; c < chunks; ++c) {
    ref = std::max(ref, states[c * pass.rows + r].ref);
  }
  std::vector<float> sum(static_cast<size_t>(pass.value_pad), 0.0F);
  float total = 0.0F;
  for (int64_t c = 0; c < chunks; ++c) {
    const RowState& part = states[c * pass.rows + r];
    if (part.ref == kMinusInf && part.sum == 0.0F) continue;
    const float rescale = part.ref == ref ? 1.0F : PowerOfTwo(part.ref - ref);
    total += rescale * part.sum;
    AddScaled(rescale, parts + (c * pass.rows + r) * pass.value_pad,
              pass.value_pad, sum.data());
  }
  const int64_t source =
      pass.call.Queries(b).source[static_cast<size_t>(pass.Query(r))];
  const int64_t row = (b * s.q_heads + pass.Head(kv, r)) * s.q_len + source;
  if (pass.paired_values) FromParts(pass.value_pad, sum.data());
  const RowState state{.ref = ref, .sum = total};
  SetScaled(InverseSum(state), sum.data(), pass.value_pad, sum.data());
  kernels::StoreRow(out, row, sum.data(), s.value_dim);
  if (lse != nullptr) lse[row] = LogSumExp(state);
}

}  // namespace stream

void DecodeF32(const Call& call, Tensor& out, float* lse) {
  const CallSizes& s = call.sizes;
  const int threads = call.plan.threads;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const int64_t heads = s.batch * s.kv_heads;
  const int64_t chunk = stream::ChunkKeys(s);
  const int64_t chunks = (s.k_len + chunk - 1) / chunk;
  const int64_t queries =
      std::max<int64_t>(1, stream::kPassRows / (s.q_heads / s.kv_heads));
  for (int64_t first = 0; first < s.q_len; first += queries) {
    const stream::DecodePass pass(call, first,
                                  std::min(queries, s.q_len - first));
    const int64_t part = pass.rows * pass.value_pad;
    FloatBuffer parts(heads * chunks * part);
    std::vector<RowState> states(
        static_cast<size_t>(heads * chunks * pass.rows));
    const auto attend = [&](int64_t task) {
      static thread_local stream::Scratch scratch;
      const int64_t head = task / chunks, at = task % chunks * chunk;
      const int64_t b = head / s.kv_heads;
      stream::ChunkTask run(pass, scratch, b, head % s.kv_heads);
      run.Attend(at, std::min(at + chunk, call.Keys(b).size()),
                 parts.data() + task * part, states.data() + task * pass.rows);
    };
    const std::vector<int64_t> starts = stream::Shares(heads * chunks, threads);
    ParallelFor(static_cast<int64_t>(starts.size()) - 1, threads,
                [&](int64_t share) {
                  const size_t n = static_cast<size_t>(share);
                  for (int64_t task = starts[n]; task < starts[n + 1]; ++task) {
                    attend(task);
                  }
                });
    ParallelFor(heads, threads, [&](int64_t head) {
      for (int64_t r = 0; r < pass.rows; ++r) {
        stream::JoinRow(pass, head / s.kv_heads, head % s.kv_heads, r,
                        states.data() + head * chunks * pass.rows,
                        parts.data() + head * chunks * part, chunks, out, lse);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_

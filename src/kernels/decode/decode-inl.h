// Attention of few queries over many keys: keys and values stream once from
// memory, shared by all rows (the queries of every head of a group), and the
// keys are split into chunks whose partial softmaxes are joined in order.
// Included once a SIMD target.
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

// Keys a chunk, from the shape alone: about 128 chunks keep 64 threads busy and
// the last of them short, and a chunk of 256 keys takes ten times as long as
// handing it out and joining it.
inline int64_t ChunkKeys(const CallSizes& s) {
  const int64_t even = s.batch * s.kv_heads * s.k_len / 128;
  return std::max(kTileKeys, (even + kTileKeys - 1) / kTileKeys * kTileKeys);
}

// Turns the scores s[0 .. n) of a row into p = 2^(s - ref) and updates its
// state. Returns what earlier sums must be multiplied by, a power of two. Reads
// and writes whole vectors: what lies behind the end becomes 0.
inline float Weigh(float* s, int64_t n, RowState& state) {
  const int64_t whole = n / kLanesI * kLanesI;
  const auto rest = hn::FirstN(kDF, static_cast<size_t>(n - whole));
  // Two chains of maxima, and of sums: one would wait for itself.
  const int64_t even = n / kPaired * kPaired;
  VF vmax = hn::Set(kDF, kMinusInf), vmax1 = vmax;
  for (int64_t j = 0; j < even; j += kPaired) {
    vmax = hn::Max(vmax, hn::LoadU(kDF, s + j));
    vmax1 = hn::Max(vmax1, hn::LoadU(kDF, s + j + kLanesI));
  }
  if (even < whole) vmax1 = hn::Max(vmax1, hn::LoadU(kDF, s + even));
  vmax = hn::Max(vmax, vmax1);
  if (whole < n) {
    vmax = hn::Max(vmax, hn::IfThenElse(rest, hn::LoadU(kDF, s + whole),
                                        hn::Set(kDF, kMinusInf)));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(kDF, vmax));
  if (max == kMinusInf) {
    // No weight but that of a NaN, which may hide from the maximum.
    for (int64_t j = 0; j < whole + kLanesI; ++j) {
      s[j] = j >= n || s[j] == kMinusInf ? 0.0F : s[j];
      state.sum += s[j];
    }
    return 1.0F;
  }
  // The exponential wants an integer of at most 2^21: beyond that, scores are
  // shifted to a reference of 0 first. An infinite or NaN maximum leaves
  // nothing but NaN, on whatever reference.
  constexpr float kLargest = 2097152.0F;
  const float ref =
      std::isfinite(max) ? std::max(state.ref, std::ceil(max)) : 0.0F;
  const float shift = !std::isfinite(max)        ? max
                      : std::abs(ref) > kLargest ? ref
                                                 : 0.0F;
  const float keep = state.ref == kMinusInf ? 1.0F
                     : state.ref == ref     ? 1.0F
                                            : PowerOfTwo(state.ref - ref);
  const Exp2Reference reference(shift == 0.0F ? ref : 0.0F);
  const VF vshift = hn::Set(kDF, shift);
  const auto weight = [&](int64_t j) HWY_ATTR {
    return Exp2(hn::Sub(hn::LoadU(kDF, s + j), vshift), reference);
  };
  VF sum = hn::Zero(kDF), sum1 = sum;
  for (int64_t j = 0; j < even; j += kPaired) {
    const VF p = weight(j), p1 = weight(j + kLanesI);
    sum = hn::Add(sum, p);
    sum1 = hn::Add(sum1, p1);
    hn::StoreU(p, kDF, s + j);
    hn::StoreU(p1, kDF, s + j + kLanesI);
  }
  if (even < whole) {
    const VF p = weight(even);
    sum1 = hn::Add(sum1, p);
    hn::StoreU(p, kDF, s + even);
  }
  sum = hn::Add(sum, sum1);
  if (whole < n) {
    const VF p = hn::IfThenElseZero(rest, weight(whole));
    sum = hn::Add(sum, p);
    hn::StoreU(p, kDF, s + whole);
  }
  state.sum = state.sum * keep + hn::GetLane(hn::SumOfLanes(kDF, sum));
  state.ref = ref;
  return keep;
}

// One chunk of the keys of one key head.
class ChunkTask {
 public:
  ChunkTask(const Plan& plan, Scratch& scratch, int64_t b, int64_t kv)
      : plan_(plan), scratch_(scratch), scorer_(plan, scratch, b, kv) {}

  // Attends keys [begin, end): out [rows][value_pad], states [rows].
  void Attend(int64_t begin, int64_t end, float* out, RowState* states);

 private:
  void AddValues(int64_t tile, Interval keys, int64_t r, int64_t count,
                 float* out);
  void FetchValues(int64_t first, int64_t r) const;
  void AddTableValues(int64_t r, Interval keys, const float* p, float* out);

  const Plan& plan_;
  Scratch& scratch_;
  ChunkScorer scorer_;
};

inline void ChunkTask::Attend(int64_t begin, int64_t end, float* out,
                              RowState* states) {
  std::fill_n(out, plan_.rows * plan_.value_pad, 0.0F);
  // A thread's own until the end: tasks of two threads share lines of `states`.
  std::vector<RowState>& now = scratch_.states;
  now.assign(static_cast<size_t>(plan_.rows), RowState());
  for (int64_t tile = begin; tile < end; tile += kTileKeys) {
    // What any row sees of the tile, and what every row sees.
    const int64_t tile_end = std::min(end, tile + kTileKeys);
    Interval any{tile_end, tile}, all{tile, tile_end};
    for (int64_t n = 0; n < plan_.count; ++n) {
      const Interval seen = scorer_.Sees(n, tile, tile_end);
      all.begin = std::max(all.begin, seen.begin);
      all.end = std::min(all.end, seen.end);
      if (seen.begin == seen.end) continue;
      any.begin = std::min(any.begin, seen.begin);
      any.end = std::max(any.end, seen.end);
    }
    if (any.begin >= any.end) continue;
    scorer_.Scores(tile, any);
    for (int64_t r = 0; r < plan_.rows; ++r) {
      FetchValues(any.begin, r);
      const Interval seen = scorer_.Sees(r, tile, tile_end);
      if (seen.begin == seen.end) continue;
      float* p = scratch_.scores.data() + r * kScoreStride;
      scorer_.AddTerms(r, tile, seen, p);
      p += seen.begin - tile;
      float* o = out + r * plan_.value_pad;
      const float keep =
          Weigh(p, seen.end - seen.begin, now[static_cast<size_t>(r)]);
      if (keep != 1.0F) SetScaled(keep, o, plan_.value_pad, o);
      if (plan_.v_rows) AddTableValues(r, seen, p, o);
    }
    // 0 * inf is NaN: a weight of zero must not meet a value that its row does
    // not see. All rows together where all see; at the borders one by one.
    if (all.begin < all.end) AddValues(tile, all, 0, plan_.rows, out);
    for (int64_t r = 0; r < plan_.rows; ++r) {
      const Interval seen = scorer_.Sees(r, tile, tile_end);
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
  if (!plan_.direct_values) return;
  const Rows& v = plan_.call.v;
  const int64_t* source = plan_.call.Keys(scorer_.b()).Order();
  WithType(v.dtype(), [&]<typename T>() {
    const RowsOf<T> rows{v.Head<T>(scorer_.b(), scorer_.kv()), v.row_stride(),
                         source};
    const int64_t count = rows.FarRows(plan_.value_pad);
    const T* far = rows[first] + rows.Far(plan_.value_pad);
    const int64_t end = count * (r + 1) / plan_.rows;
    for (int64_t n = count * r / plan_.rows; n < end; ++n) {
      for (int64_t d = 0; d < plan_.value_pad; d += kLineOf<T>) {
        Fetch<Level::kL2>(far + n * rows.stride + d);
      }
    }
  });
}

// out[r ..] += p v over keys for `count` rows.
inline void ChunkTask::AddValues(int64_t tile, Interval keys, int64_t r,
                                 int64_t count, float* out) {
  if (keys.begin >= keys.end) return;
  const Call& call = plan_.call;
  const float* p =
      scratch_.scores.data() + r * kScoreStride + (keys.begin - tile);
  out += r * plan_.value_pad;
  const int64_t* source = call.Keys(scorer_.b()).Order();
  if (plan_.direct_values) {
    WithType(call.v.dtype(), [&]<typename T>() {
      const RowsOf<T> values{call.v.Head<T>(scorer_.b(), scorer_.kv()),
                             call.v.row_stride(), source};
      AddWeighted</*kFetch=*/true>(values, keys.begin, keys.end, p,
                                   kScoreStride, count, plan_.value_pad, out,
                                   plan_.value_pad);
    });
    return;
  }
  scratch_.values.Resize(kKeysInL1 * plan_.value_pad);
  for (int64_t j = keys.begin; j < keys.end; j += kKeysInL1) {
    const int64_t n = std::min(kKeysInL1, keys.end - j);
    for (int64_t i = 0; i < n; ++i) {
      StageRow(call.v, scorer_.b(), scorer_.kv(),
               source == nullptr ? j + i : source[j + i], plan_.value_pad,
               scratch_.values.data() + i * plan_.value_pad);
    }
    const RowsOf<float> values{scratch_.values.data(), plan_.value_pad,
                               nullptr};
    AddWeighted</*kFetch=*/false>(values, 0, n, p + (j - keys.begin),
                                  kScoreStride, count, plan_.value_pad, out,
                                  plan_.value_pad);
  }
}

// out += sum p_j Tv[b_j]: keys of one bucket in a row share a row of the table.
inline void ChunkTask::AddTableValues(int64_t r, Interval keys, const float* p,
                                      float* out) {
  const BucketTable& table = *plan_.call.terms.v_table;
  const int64_t h = plan_.Head(scorer_.kv(), r);
  scratch_.table_row.Resize(plan_.value_pad);
  for (int64_t j = keys.begin; j < keys.end;) {
    const int32_t bucket = scorer_.Bucket(table.buckets, plan_.v_map, r, j);
    float weight = 0.0F;
    do {
      weight += p[j - keys.begin];
      ++j;
    } while (j < keys.end &&
             bucket == scorer_.Bucket(table.buckets, plan_.v_map, r, j));
    StageRow(*plan_.v_rows, 0, table.rows.size(0) == 1 ? 0 : h, bucket,
             plan_.value_pad, scratch_.table_row.data());
    if (plan_.paired_values) {
      ToParts(plan_.value_pad, scratch_.table_row.data());
    }
    AddScaled(weight, scratch_.table_row.data(), plan_.value_pad, out);
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
inline void JoinRow(const Plan& plan, int64_t b, int64_t kv, int64_t r,
                    const RowState* states, const float* parts, int64_t chunks,
                    Tensor& out, float* lse) {
  const CallSizes& s = plan.call.sizes;
  float ref = kMinusInf;
  for (int64_t c = 0; c < chunks; ++c) {
    ref = std::max(ref, states[c * plan.rows + r].ref);
  }
  std::vector<float> sum(static_cast<size_t>(plan.value_pad), 0.0F);
  float total = 0.0F;
  for (int64_t c = 0; c < chunks; ++c) {
    const RowState& part = states[c * plan.rows + r];
    if (part.ref == kMinusInf && part.sum == 0.0F) continue;
    const float keep = part.ref == ref ? 1.0F : PowerOfTwo(part.ref - ref);
    total += keep * part.sum;
    AddScaled(keep, parts + (c * plan.rows + r) * plan.value_pad,
              plan.value_pad, sum.data());
  }
  const int64_t source =
      plan.call.Queries(b).source[static_cast<size_t>(plan.Query(r))];
  const int64_t row = (b * s.q_heads + plan.Head(kv, r)) * s.q_len + source;
  if (plan.paired_values) FromParts(plan.value_pad, sum.data());
  const bool nothing = total == 0.0F;
  SetScaled(nothing ? 0.0F : 1.0F / total, sum.data(), plan.value_pad,
            sum.data());
  kernels::StoreRow(out, row, sum.data(), s.value_dim);
  if (lse == nullptr) return;
  lse[row] = nothing ? kMinusInf : LogSumExp({.ref = ref, .sum = total});
}

}  // namespace stream

void DecodeF32(const kernels::Call& call, Tensor& out, float* lse, int threads,
               bool keys_rotated) {
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  const int64_t heads = s.batch * s.kv_heads;
  const int64_t chunk = stream::ChunkKeys(s);
  const int64_t chunks = (s.k_len + chunk - 1) / chunk;
  const int64_t pass =
      std::max<int64_t>(1, stream::kPassRows / (s.q_heads / s.kv_heads));
  for (int64_t first = 0; first < s.q_len; first += pass) {
    const stream::Plan plan(call, keys_rotated, first,
                            std::min(pass, s.q_len - first), threads);
    const int64_t part = plan.rows * plan.value_pad;
    FloatBuffer parts(heads * chunks * part);
    std::vector<RowState> states(
        static_cast<size_t>(heads * chunks * plan.rows));
    const auto attend = [&](int64_t task) {
      static thread_local stream::Scratch scratch;
      const int64_t head = task / chunks, at = task % chunks * chunk;
      const int64_t b = head / s.kv_heads;
      stream::ChunkTask run(plan, scratch, b, head % s.kv_heads);
      run.Attend(at, std::min(at + chunk, call.Keys(b).size()),
                 parts.data() + task * part, states.data() + task * plan.rows);
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
      for (int64_t r = 0; r < plan.rows; ++r) {
        stream::JoinRow(plan, head / s.kv_heads, head % s.kv_heads, r,
                        states.data() + head * chunks * plan.rows,
                        parts.data() + head * chunks * part, chunks, out, lse);
      }
    });
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_INL_H_

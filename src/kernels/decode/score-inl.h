// Scores of the rows of one key head against a tile of keys, with every term
// that touches them. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include <limits>
#include <utility>
#include <vector>

#include "kernels/decode/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Keys a tile: long enough that keys and values are each read in long
// stretches, 128 KiB at D = 128, and short enough that the scores of 32 rows,
// 33 KiB, stay close.
constexpr int64_t kTileKeys = 256;
// A line more than a tile: whole vectors past its end may be touched.
constexpr int64_t kScoreStride = kTileKeys + 16;

// Memory of one thread.
struct Scratch {
  FloatBuffer scores;     // [rows][kScoreStride]
  FloatBuffer keys;       // [kKeysInL1][dim_pad]
  FloatBuffer values;     // [kKeysInL1][value_pad]
  FloatBuffer queries;    // [rows][dim_pad], turned for a span
  FloatBuffer key_dots;   // k_j.Tk[b]: [rows][kScoreStride]
  FloatBuffer table_row;  // one row of a table, or of the extra dimensions
  FloatBuffer extra_row;
  std::vector<RowState> states;  // of the rows
};

class ChunkScorer {
 public:
  ChunkScorer(const Plan& plan, Scratch& scratch, int64_t b, int64_t kv)
      : plan_(plan),
        call_(plan.call),
        tokens_(plan.call.Keys(b)),
        scratch_(scratch),
        b_(b),
        kv_(kv) {
    scratch_.scores.Resize(plan.rows * kScoreStride);
    if (call_.terms.bias) {
      ramp_ = std::get_if<BiasRamp>(&*call_.terms.bias);
      profile_ = std::get_if<BiasProfile>(&*call_.terms.bias);
      table_ = std::get_if<BiasTable>(&*call_.terms.bias);
    }
  }

  int64_t b() const { return b_; }
  int64_t kv() const { return kv_; }

  // What row r sees of keys [begin, end).
  Interval Sees(int64_t r, int64_t begin, int64_t end) const {
    const Interval seen = call_.Sees(b_, plan_.Query(r));
    const int64_t from = std::clamp(seen.begin, begin, end);
    return {from, std::clamp(seen.end, from, end)};
  }

  // Dot products of all rows with keys [keys.begin, keys.end): key j of row r
  // in column j - tile of row r of scratch.scores.
  void Scores(int64_t tile, Interval keys);

  // Adds the terms of row r to its scores s, by column.
  void AddTerms(int64_t r, int64_t tile, Interval keys, float* s);

  // The bucket of row r and key j; `map` is that of a table by offset.
  int32_t Bucket(const BucketMap& buckets, const std::optional<RelMap>& map,
                 int64_t r, int64_t j) const {
    const int64_t m = plan_.QueryPosition(b_, r);
    const int64_t n = tokens_.position[static_cast<size_t>(j)];
    if (!map) return buckets(m, n);
    const int64_t e =
        std::clamp<int64_t>(n - m - map->first, 0, map->width() - 1);
    return map->bucket[static_cast<size_t>(e)];
  }

 private:
  // The span that key j belongs to.
  int64_t SpanOf(int64_t j) const {
    const std::vector<Span>& list = plan_.spans[plan_.Sequence(b_)];
    const auto after = std::ranges::upper_bound(list, j, {}, &Span::first);
    return after - list.begin() - 1;
  }
  // Cosines and sines that key j of the present span turns by.
  std::pair<const float*, const float*> KeyAngles(int64_t j) const {
    const int64_t pairs = call_.terms.rotate->NumPairs();
    const size_t sequence = plan_.Sequence(b_);
    if (plan_.key_rotation == KeyRotation::kRelative) {
      const int64_t first =
          plan_.spans[sequence][static_cast<size_t>(span_)].first;
      const float* cos = plan_.key_angles.data() + (j - first) * 2 * pairs;
      return {cos, cos + pairs};
    }
    const RotationTable& table = plan_.k_angles[sequence];
    return {table.cos.data() + j * pairs, table.sin.data() + j * pairs};
  }
  void StageKeys(int64_t tile, int64_t begin, int64_t end);
  void RotateQueries(int64_t span);
  void DotKeyTable(int64_t tile, int64_t begin, int64_t end);
  void AddRel(const RelRows& rows, int64_t n, int64_t m, Interval keys,
              float* s) const;
  void AddRamp(int64_t h, int64_t m, Interval keys, float* s) const;
  void AddProfile(int64_t h, int64_t m, Interval keys, float* s) const;
  void AddExtra(int64_t h, int64_t m, Interval keys, float* s);
  void Cap(float* s, int64_t n) const;

  // Calls f(begin, end) for stretches of consecutive positions.
  template <typename F>
  void ForRuns(Interval keys, const F& f) const {
    size_t run = tokens_.RunOf(keys.begin);
    for (int64_t j = keys.begin; j < keys.end; ++run) {
      const Run& at = tokens_.runs[run];
      const int64_t end = std::min(keys.end, at.first + at.count);
      f(j, end);
      j = end;
    }
  }

  const Plan& plan_;
  const Call& call_;
  const Tokens& tokens_;
  Scratch& scratch_;
  int64_t b_, kv_;
  int64_t span_ = -1;  // that scratch.queries are turned for
  const BiasRamp* ramp_ = nullptr;
  const BiasProfile* profile_ = nullptr;
  const BiasTable* table_ = nullptr;
};

inline void ChunkScorer::Scores(int64_t tile, Interval keys) {
  float* scores = scratch_.scores.data();
  if (plan_.direct_keys) {
    WithType(call_.k.dtype(), [&]<typename T>() {
      const RowsOf<T> rows{call_.k.Head<T>(b_, kv_), call_.k.row_stride(),
                           tokens_.Order()};
      DotRows</*kFetch=*/true>(rows, keys.begin, keys.end,
                               plan_.Queries(b_, kv_), plan_.dim_pad,
                               plan_.rows, plan_.dim_pad,
                               scores + (keys.begin - tile), kScoreStride);
    });
    return;
  }
  scratch_.keys.Resize(kKeysInL1 * plan_.dim_pad);
  for (int64_t j = keys.begin; j < keys.end;) {
    int64_t end = std::min(keys.end, j + kKeysInL1);
    const float* queries = plan_.Queries(b_, kv_);
    if (plan_.key_rotation == KeyRotation::kRelative) {
      const std::vector<Span>& list = plan_.spans[plan_.Sequence(b_)];
      const int64_t span = SpanOf(j);
      if (static_cast<size_t>(span) + 1 < list.size()) {
        end = std::min(end, list[static_cast<size_t>(span) + 1].first);
      }
      RotateQueries(span);
      queries = scratch_.queries.data();
    }
    StageKeys(tile, j, end);
    const RowsOf<float> rows{scratch_.keys.data(), plan_.dim_pad, nullptr};
    DotRows</*kFetch=*/false>(rows, 0, end - j, queries, plan_.dim_pad,
                              plan_.rows, plan_.dim_pad, scores + (j - tile),
                              kScoreStride);
    j = end;
  }
}

// Keys [begin, end) as floats, rotated, in scratch.keys.
inline void ChunkScorer::StageKeys(int64_t tile, int64_t begin, int64_t end) {
  const bool turns = plan_.key_rotation == KeyRotation::kRelative ||
                     plan_.key_rotation == KeyRotation::kAbsolute;
  if (turns && plan_.whole_rotation) {
    WithType(call_.k.dtype(), [&]<typename T>() {
      const RowsOf<T> rows{call_.k.Head<T>(b_, kv_), call_.k.row_stride(),
                           tokens_.Order()};
      const int64_t far = rows.Far(call_.sizes.head_dim);
      const int64_t near = 4 * rows.stride;
      for (int64_t j = begin; j < end; ++j) {
        const T* row = rows[j];
        for (int64_t d = 0; d < call_.sizes.head_dim; d += kPaired) {
          FetchVectors<2>(row + d, far, near);
        }
        const auto [cos, sin] = KeyAngles(j);
        RotateRow(*call_.terms.rotate, cos, sin, row,
                  scratch_.keys.data() + (j - begin) * plan_.dim_pad);
      }
    });
    return;
  }
  for (int64_t j = begin; j < end; ++j) {
    StageRow(call_.k, b_, kv_, tokens_.source[static_cast<size_t>(j)],
             plan_.dim_pad, scratch_.keys.data() + (j - begin) * plan_.dim_pad);
  }
  if (plan_.k_rows) DotKeyTable(tile, begin, end);
  if (!turns) return;
  for (int64_t j = begin; j < end; ++j) {
    const auto [cos, sin] = KeyAngles(j);
    float* key = scratch_.keys.data() + (j - begin) * plan_.dim_pad;
    RotateRow(*call_.terms.rotate, cos, sin, key, key);
  }
}

// Queries turned by m - n0 for the span of keys from n0 on.
inline void ChunkScorer::RotateQueries(int64_t span) {
  if (span == span_) return;
  span_ = span;
  const Rotation& r = *call_.terms.rotate;
  scratch_.queries.Resize(plan_.rows * plan_.dim_pad);
  std::copy_n(plan_.Queries(b_, kv_), plan_.rows * plan_.dim_pad,
              scratch_.queries.data());
  for (int64_t row = 0; row < plan_.rows; ++row) {
    const float* cos = plan_.SpanAngles(b_, span, row % plan_.count);
    float* query = scratch_.queries.data() + row * plan_.dim_pad;
    RotateRow(r, cos, cos + r.NumPairs(), query, query);
  }
}

// k_j.Tk[b] of the staged, still unrotated keys, for every row.
inline void ChunkScorer::DotKeyTable(int64_t tile, int64_t begin, int64_t end) {
  const BucketTable& table = *call_.terms.k_table;
  scratch_.key_dots.Resize(plan_.rows * kScoreStride);
  scratch_.table_row.Resize(plan_.dim_pad);
  for (int64_t r = 0; r < plan_.rows; ++r) {
    const int64_t h = table.rows.size(0) == 1 ? 0 : plan_.Head(kv_, r);
    int32_t loaded = -1;
    for (int64_t j = begin; j < end; ++j) {
      const Interval seen = Sees(r, j, j + 1);
      if (seen.begin == seen.end) continue;
      const int32_t bucket = Bucket(table.buckets, plan_.k_map, r, j);
      if (bucket != loaded) {
        StageRow(*plan_.k_rows, 0, h, bucket, plan_.dim_pad,
                 scratch_.table_row.data());
        loaded = bucket;
      }
      scratch_.key_dots.data()[r * kScoreStride + j - tile] =
          Dot(scratch_.keys.data() + (j - begin) * plan_.dim_pad,
              scratch_.table_row.data(), plan_.dim_pad);
    }
  }
}

inline void ChunkScorer::AddTerms(int64_t r, int64_t tile, Interval keys,
                                  float* s) {
  s -= tile;  // by key
  const Terms& terms = call_.terms;
  const int64_t h = plan_.Head(kv_, r);
  const int64_t m = plan_.QueryPosition(b_, r);
  if (terms.extra_dot) AddExtra(h, m, keys, s);
  if (plan_.q_table) {
    AddRel(*plan_.q_table, plan_.RowIndex(b_, kv_, r), m, keys, s);
  } else if (terms.q_table) {
    const int64_t head = terms.q_table->rows.size(0) == 1 ? 0 : h;
    scratch_.table_row.Resize(plan_.dim_pad);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      StageRow(*plan_.q_rows, 0, head, Bucket(terms.q_table->buckets, {}, r, j),
               plan_.dim_pad, scratch_.table_row.data());
      s[j] +=
          Dot(plan_.plain.data() + plan_.RowIndex(b_, kv_, r) * plan_.dim_pad,
              scratch_.table_row.data(), plan_.dim_pad);
    }
  }
  if (plan_.k_rows) {
    const float scale = plan_.ScaleOf(m);
    const float* dots = scratch_.key_dots.data() + r * kScoreStride - tile;
    for (int64_t j = keys.begin; j < keys.end; ++j) s[j] += scale * dots[j];
  }
  if (plan_.bias) {
    AddRel(*plan_.bias, table_->values.size(0) == 1 ? 0 : h, m, keys, s);
  } else if (table_ != nullptr) {
    // Two-dimensional or with a token apart: key by key.
    const int64_t head = table_->values.size(0) == 1 ? 0 : h;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      s[j] += static_cast<float>(
          kLog2E * table_->values.At(head, Bucket(table_->buckets, {}, r, j)));
    }
  } else if (ramp_ != nullptr) {
    AddRamp(h, m, keys, s);
  } else if (profile_ != nullptr) {
    AddProfile(h, m, keys, s);
  }
  if (call_.softcap > 0.0F) Cap(s + keys.begin, keys.end - keys.begin);
}

inline void ChunkScorer::AddRel(const RelRows& rows, int64_t n, int64_t m,
                                Interval keys, float* s) const {
  ForRuns(keys, [&](int64_t j, int64_t end) {
    int64_t rel = tokens_.position[static_cast<size_t>(j)] - m;
    for (; j + kLanesI <= end; j += kLanesI, rel += kLanesI) {
      hn::StoreU(
          hn::Add(hn::LoadU(kDF, s + j), hn::LoadU(kDF, rows.At(n, rel))), kDF,
          s + j);
    }
    for (; j < end; ++j, ++rel) s[j] += *rows.At(n, rel);
  });
}

inline void ChunkScorer::AddRamp(int64_t h, int64_t m, Interval keys,
                                 float* s) const {
  const size_t head = static_cast<size_t>(h);
  const float past = static_cast<float>(ramp_->past[head] * kLog2E);
  const float future = static_cast<float>(-ramp_->future[head] * kLog2E);
  const VF vpast = hn::Set(kDF, past), vfuture = hn::Set(kDF, future);
  ForRuns(keys, [&](int64_t j, int64_t end) {
    int64_t rel = tokens_.position[static_cast<size_t>(j)] - m;
    for (; j + kLanesI <= end; j += kLanesI, rel += kLanesI) {
      const VF x =
          hn::Add(hn::Iota(kDF, 0.0F), hn::Set(kDF, static_cast<float>(rel)));
      const VF slope = hn::IfThenElse(hn::Lt(x, hn::Zero(kDF)), vpast, vfuture);
      hn::StoreU(hn::MulAdd(x, slope, hn::LoadU(kDF, s + j)), kDF, s + j);
    }
    for (; j < end; ++j, ++rel) {
      s[j] += static_cast<float>(rel) * (rel < 0 ? past : future);
    }
  });
}

inline void ChunkScorer::AddProfile(int64_t h, int64_t m, Interval keys,
                                    float* s) const {
  const BiasProfile& p = *profile_;
  const int64_t head = p.base.size(0) == 1 ? 0 : h;
  const double gain = p.row_gain[static_cast<size_t>(m - p.first_position)];
  const double* base = p.base.Data<double>() + head * p.base.size(1);
  const double* slope = p.slope.Data<double>() + head * p.slope.size(1);
  // x moves slowly along the keys: walk from segment to segment.
  size_t segment = 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const int64_t distance =
        std::abs(tokens_.position[static_cast<size_t>(j)] - m);
    const double x = p.distance[static_cast<size_t>(distance)] * gain;
    while (segment > 0 && x < p.knots[segment - 1]) --segment;
    while (segment < p.knots.size() && x >= p.knots[segment]) ++segment;
    s[j] += static_cast<float>(kLog2E * (base[segment] + slope[segment] * x));
  }
}

// s_j += scale a_i.c_j.
inline void ChunkScorer::AddExtra(int64_t h, int64_t m, Interval keys,
                                  float* s) {
  const ExtraDot& dot = *call_.terms.extra_dot;
  const int64_t padded = AlignUp(dot.q_rows.size(2), kLanesI);
  scratch_.table_row.Resize(padded);
  scratch_.extra_row.Resize(padded);
  StageRow(*plan_.extra_q, 0, dot.q_rows.size(0) == 1 ? 0 : h,
           m - dot.first_position, padded, scratch_.extra_row.data());
  SetScaled(plan_.ScaleOf(m), scratch_.extra_row.data(), padded,
            scratch_.extra_row.data());
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const int64_t n = tokens_.position[static_cast<size_t>(j)];
    StageRow(*plan_.extra_k, 0, dot.k_rows.size(0) == 1 ? 0 : h,
             n - dot.first_position, padded, scratch_.table_row.data());
    s[j] += Dot(scratch_.extra_row.data(), scratch_.table_row.data(), padded);
  }
}

// cap tanh(s / cap), with s and cap both in units of log2.
inline void ChunkScorer::Cap(float* s, int64_t n) const {
  const VF cap = hn::Set(kDF, static_cast<float>(call_.softcap * kLog2E));
  const VF inverse =
      hn::Set(kDF, static_cast<float>(1.0 / (call_.softcap * kLog2E)));
  // Past the end lies scratch.
  for (int64_t j = 0; j < n; j += kLanesI) {
    const VF x = hn::LoadU(kDF, s + j);
    hn::StoreU(hn::Mul(cap, hn::Tanh(kDF, hn::Mul(x, inverse))), kDF, s + j);
  }
}

}  // namespace stream
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_

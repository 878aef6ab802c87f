// Scores of the rows of one key head against a tile of keys, with every term of
// the scores. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#endif

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/decode/pass-inl.h"
#include "kernels/terms/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Keys per tile: enough that keys and values are each read in long contiguous
// ranges, 128 KiB at D = 128, and few enough that the scores of 32 rows, 33
// KiB, stay in cache.
constexpr int64_t kTileKeys = 256;
// One cache line more than a tile: whole vectors may reach past its end.
constexpr int64_t kScoreStride = kTileKeys + 16;

// Memory of one worker: parts of a single buffer.
struct Scratch {
  Scratch(const DecodePass& pass, int64_t rows);

  FloatBuffer floats;
  float* scores = nullptr;     // [rows][kScoreStride]
  float* keys = nullptr;       // [kKeysInL1][dim_pad]
  float* values = nullptr;     // [kKeysInL1][value_pad]
  float* queries = nullptr;    // [rows][dim_pad], rotated for the current span
  float* key_dots = nullptr;   // k_j.Tk[b]: [rows][kScoreStride]
  float* table_row = nullptr;  // one row of a table or of extra_k
  float* extra_row = nullptr;
  float* sum = nullptr;          // sum of the chunks of a row: [value_pad]
  std::vector<RowState> states;  // of the rows
};

inline Scratch::Scratch(const DecodePass& pass, int64_t rows)
    : states(static_cast<size_t>(rows)) {
  const Terms& terms = pass.call.terms;
  const int64_t extra =
      terms.extra_dot ? AlignUp(terms.extra_dot->q_rows.size(2), kLanesI) : 0;
  const bool relative = pass.key_rotation == KeyRotation::kRelative;
  const struct {
    float** at;
    int64_t size;
  } parts[] = {
      {&scores, rows * kScoreStride},
      {&keys, pass.direct_keys ? 0 : kKeysInL1 * pass.dim_pad},
      {&values, pass.direct_values ? 0 : kKeysInL1 * pass.value_pad},
      {&queries, relative ? rows * pass.dim_pad : 0},
      {&key_dots, pass.k_rows ? rows * kScoreStride : 0},
      {&table_row,
       std::max({pass.dim_pad, pass.value_pad, pass.table_pad, extra})},
      {&extra_row, extra},
      {&sum, pass.value_pad},
  };
  int64_t total = 0;
  for (const auto& part : parts) total += AlignUp(part.size, 16);
  floats.Resize(total);
  float* next = floats.data();
  for (const auto& part : parts) {
    *part.at = next;
    next += AlignUp(part.size, 16);
  }
}

class ChunkScorer {
 public:
  ChunkScorer(const DecodePass& pass, Scratch& scratch, int64_t b, int64_t kv)
      : pass_(pass),
        call_(pass.call),
        tokens_(pass.call.Keys(b)),
        scratch_(scratch),
        b_(b),
        kv_(kv) {}

  int64_t b() const { return b_; }
  int64_t kv() const { return kv_; }

  // The part of keys [begin, end) that row r sees.
  kernels::Glimpse Look(int64_t r, int64_t begin, int64_t end) const {
    return call_.Look(b_, pass_.Head(kv_, r), pass_.Query(r), {begin, end});
  }
  // Dot products of all rows with `keys`: that of row r and key j goes to
  // column j - tile of row r of scratch.scores.
  void Scores(int64_t tile, Interval keys);

  // Sets the scores or weights s, indexed by key, of keys hidden from row r.
  void SetHidden(int64_t r, const kernels::Glimpse& look, float value,
                 float* s) const {
    if (!look.gaps) return;
    call_.ForHidden(b_, pass_.Head(kv_, r), pass_.Query(r), look.seen,
                    [=](int64_t begin, int64_t end) {
                      std::fill(s + begin, s + end, value);
                    });
  }
  // Zeroes the weights p, indexed by key, of keys hidden from row r or dropped.
  void Clear(int64_t r, const kernels::Glimpse& look, float* p) const {
    SetHidden(r, look, 0.0F, p);
    if (!pass_.dropout.present()) return;
    pass_.dropout.Drop(b_, pass_.Head(kv_, r), pass_.Query(r), look.seen, p);
  }

  // Adds the terms of row r to its scores s, indexed by column; those of hidden
  // keys become -inf.
  void AddTerms(int64_t r, int64_t tile, const kernels::Glimpse& look,
                float* s);

  // The bucket of row r and key j; `map` is that of the table, if it is indexed
  // by offset.
  int32_t Bucket(const BucketMap& buckets, const std::optional<OffsetMap>& map,
                 int64_t r, int64_t j) const {
    const int64_t m = pass_.QueryPosition(b_, r), n = tokens_.Position(j);
    return map ? map->Bucket(m - n) : buckets(m, n);
  }

 private:
  // The span that contains key j.
  int64_t SpanOf(int64_t j) const {
    const std::vector<Span>& list = pass_.spans[pass_.Sequence(b_)];
    const auto after = std::ranges::upper_bound(list, j, {}, &Span::first);
    return after - list.begin() - 1;
  }
  // Cosines and sines that rotate key j of the current span.
  std::pair<const float*, const float*> KeyAngles(int64_t j) const {
    const int64_t pairs = call_.terms.rotate->NumPairs();
    const size_t sequence = pass_.Sequence(b_);
    if (pass_.key_rotation == KeyRotation::kRelative) {
      const int64_t first =
          pass_.spans[sequence][static_cast<size_t>(span_)].first;
      const float* cos = pass_.key_angles.data() + (j - first) * 2 * pairs;
      return {cos, cos + pairs};
    }
    const RotationTable& table = pass_.k_angles[sequence];
    const int64_t at = table.Row(kv_, j) * pairs;
    return {table.cos.data() + at, table.sin.data() + at};
  }
  void StageKeys(int64_t tile, int64_t begin, int64_t end);
  void RotateQueries(int64_t span);
  void DotKeyTable(int64_t tile, int64_t begin, int64_t end);
  void AddExtra(int64_t h, int64_t m, Interval keys, float* s);

  const DecodePass& pass_;
  const Call& call_;
  const Tokens& tokens_;
  Scratch& scratch_;
  int64_t b_, kv_;
  int64_t span_ = -1;  // the span that scratch.queries are rotated for
};

inline void ChunkScorer::Scores(int64_t tile, Interval keys) {
  float* scores = scratch_.scores;
  if (pass_.direct_keys) {
    const int64_t first_row = pass_.RowIndex(b_, kv_, 0);
    WithStoredType(call_.k.dtype(), [&]<typename T>() {
      ForStretches<T>(
          call_.k, b_, kv_, tokens_.Order(), tokens_.size(), keys.begin,
          keys.end, [&](const RowsOf<T>& rows, int64_t j, int64_t n) {
            float* to = scores + (j - tile);
#if LOCUS_INT8_PRODUCTS
            if constexpr (std::is_same_v<T, int8_t>) {
              if (pass_.integer_keys) {
                const int16_t* queries =
                    pass_.integer_queries.data() + first_row * pass_.dim_pad;
                WithPairs(pass_.fused_pairs, [&](auto fused) {
                  DotRows</*kPrefetch=*/true, ByIntegers<fused()>>(
                      rows, 0, n, queries, pass_.dim_pad, pass_.rows,
                      pass_.dim_pad, to, kScoreStride);
                });
                return;
              }
            }
#endif
            DotRows</*kPrefetch=*/true>(rows, 0, n, pass_.Queries(b_, kv_),
                                        pass_.dim_pad, pass_.rows,
                                        pass_.dim_pad, to, kScoreStride);
          });
    });
    if (const float* scales = call_.k.Scales(b_, kv_)) {
      for (int64_t r = 0; r < pass_.rows; ++r) {
        const float factor =
            pass_.integer_keys
                ? pass_.query_scales[static_cast<size_t>(first_row + r)]
                : 1.0F;
        MultiplyByScales(factor, scales, tokens_.Order(), keys.begin, keys.end,
                         scores + r * kScoreStride - tile);
      }
    }
    return;
  }
  for (int64_t j = keys.begin; j < keys.end;) {
    int64_t end = std::min(keys.end, j + kKeysInL1);
    const float* queries = pass_.Queries(b_, kv_);
    if (pass_.key_rotation == KeyRotation::kRelative) {
      const std::vector<Span>& list = pass_.spans[pass_.Sequence(b_)];
      const int64_t span = SpanOf(j);
      if (static_cast<size_t>(span) + 1 < list.size()) {
        end = std::min(end, list[static_cast<size_t>(span) + 1].first);
      }
      RotateQueries(span);
      queries = scratch_.queries;
    }
    StageKeys(tile, j, end);
    const RowsOf<float> rows{scratch_.keys, pass_.dim_pad};
    DotRows</*kPrefetch=*/false>(rows, 0, end - j, queries, pass_.dim_pad,
                                 pass_.rows, pass_.dim_pad, scores + (j - tile),
                                 kScoreStride);
    j = end;
  }
}

// Loads keys [begin, end) into scratch.keys, as floats and rotated.
inline void ChunkScorer::StageKeys(int64_t tile, int64_t begin, int64_t end) {
  const bool rotates = pass_.key_rotation == KeyRotation::kRelative ||
                       pass_.key_rotation == KeyRotation::kAbsolute;
  if (rotates && pass_.whole_rotation) {
    WithType(call_.k.dtype(), [&]<typename T>() {
      const RowsOf<T> rows{call_.k.At<T>(b_, kv_, 0), call_.k.row_stride(),
                           tokens_.Order()};
      const int64_t far = rows.FarRows(call_.sizes.head_dim) * rows.stride;
      const int64_t near = 4 * rows.stride;
      for (int64_t j = begin; j < end; ++j) {
        const T* row = rows[j];
        for (int64_t d = 0; d < call_.sizes.head_dim; d += kPaired) {
          PrefetchVectors<2>(row + d, far, near);
        }
        const auto [cos, sin] = KeyAngles(j);
        RotateWholeRow(*call_.terms.rotate, cos, sin, row,
                       scratch_.keys + (j - begin) * pass_.dim_pad);
      }
    });
    return;
  }
  for (int64_t j = begin; j < end; ++j) {
    StageRow(call_.k, b_, kv_, tokens_.source[static_cast<size_t>(j)],
             pass_.dim_pad, scratch_.keys + (j - begin) * pass_.dim_pad);
  }
  if (pass_.k_rows) DotKeyTable(tile, begin, end);
  if (!rotates) return;
  for (int64_t j = begin; j < end; ++j) {
    const auto [cos, sin] = KeyAngles(j);
    float* key = scratch_.keys + (j - begin) * pass_.dim_pad;
    RotateRow(*call_.terms.rotate, cos, sin, key, key);
  }
}

// Rotates the queries by m - n0 for the span of keys starting at position n0.
inline void ChunkScorer::RotateQueries(int64_t span) {
  if (span == span_) return;
  span_ = span;
  const Rotation& r = *call_.terms.rotate;
  std::copy_n(pass_.Queries(b_, kv_), pass_.rows * pass_.dim_pad,
              scratch_.queries);
  for (int64_t row = 0; row < pass_.rows; ++row) {
    const float* cos = pass_.SpanAngles(b_, span, row % pass_.count);
    float* query = scratch_.queries + row * pass_.dim_pad;
    RotateRow(r, cos, cos + r.NumPairs(), query, query);
  }
}

// Computes k_j.Tk[b] of the staged, not yet rotated keys, for every row.
inline void ChunkScorer::DotKeyTable(int64_t tile, int64_t begin, int64_t end) {
  const BucketTable& table = *call_.terms.k_table;
  for (int64_t r = 0; r < pass_.rows; ++r) {
    const int64_t h = table.rows.size(0) == 1 ? 0 : pass_.Head(kv_, r);
    int32_t loaded = -1;
    for (int64_t j = begin; j < end; ++j) {
      if (Look(r, j, j + 1).seen.empty()) continue;
      const int32_t bucket = Bucket(table.buckets, pass_.k_map, r, j);
      if (bucket != loaded) {
        StageRow(*pass_.k_rows, 0, h, bucket, pass_.dim_pad,
                 scratch_.table_row);
        loaded = bucket;
      }
      scratch_.key_dots[r * kScoreStride + j - tile] =
          Dot(scratch_.keys + (j - begin) * pass_.dim_pad, scratch_.table_row,
              pass_.dim_pad);
    }
  }
}

inline void ChunkScorer::AddTerms(int64_t r, int64_t tile,
                                  const kernels::Glimpse& look, float* s) {
  s -= tile;  // indexed by key
  const Interval keys = look.seen;
  const Terms& terms = call_.terms;
  const int64_t h = pass_.Head(kv_, r);
  const int64_t m = pass_.QueryPosition(b_, r);
  if (terms.extra_dot) AddExtra(h, m, keys, s);
  if (pass_.q_map) {
    const float* row =
        pass_.q_table.data() + pass_.RowIndex(b_, kv_, r) * pass_.q_stride;
    BiasTerm::ForRuns(m, tokens_, keys,
                      [&](int64_t j, int64_t end, int64_t offset) {
                        AddRowByOffset(row, *pass_.q_map, j, end, offset, s);
                      });
  } else if (terms.q_table) {
    const int64_t head = terms.q_table->rows.size(0) == 1 ? 0 : h;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      StageRow(*pass_.q_rows, 0, head, Bucket(terms.q_table->buckets, {}, r, j),
               pass_.table_pad, scratch_.table_row);
      s[j] +=
          Dot(pass_.plain.data() + pass_.RowIndex(b_, kv_, r) * pass_.table_pad,
              scratch_.table_row, pass_.table_pad);
    }
  }
  if (pass_.k_rows) {
    const float scale = pass_.operands.ScaleOf(h, m);
    const float* dots = scratch_.key_dots + r * kScoreStride - tile;
    for (int64_t j = keys.begin; j < keys.end; ++j) s[j] += scale * dots[j];
  }
  if (pass_.bias) pass_.bias->Add(h, m, tokens_, keys, s);
  if (pass_.operand_bias.present()) {
    pass_.operand_bias.Add(b_, h, pass_.Query(r), keys, s);
  }
  if (call_.softcap > 0.0F) {
    SoftCapRow(call_.softcap, keys.size(), s + keys.begin);
  }
  SetHidden(r, look, kMinusInf, s);
}

// s_j += scale a_i.c_j.
inline void ChunkScorer::AddExtra(int64_t h, int64_t m, Interval keys,
                                  float* s) {
  const ExtraDot& dot = *call_.terms.extra_dot;
  const int64_t padded = AlignUp(dot.q_rows.size(2), kLanesI);
  StageRow(*pass_.extra_q, 0, dot.q_rows.size(0) == 1 ? 0 : h,
           m - dot.first_position, padded, scratch_.extra_row);
  SetScaled(pass_.operands.ScaleOf(h, m), scratch_.extra_row, padded,
            scratch_.extra_row);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const int64_t n = tokens_.Position(j);
    StageRow(*pass_.extra_k, 0, dot.k_rows.size(0) == 1 ? 0 : h,
             n - dot.first_position, padded, scratch_.table_row);
    s[j] += Dot(scratch_.extra_row, scratch_.table_row, padded);
  }
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_

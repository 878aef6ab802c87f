// Scores of the rows of one key head against a tile of keys, with every term
// that touches them. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_
#endif

#include <limits>
#include <utility>
#include <vector>

#include "kernels/decode/pass-inl.h"
#include "kernels/terms/softmax-inl.h"

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
  FloatBuffer queries;    // [rows][dim_pad], rotated for a span
  FloatBuffer key_dots;   // k_j.Tk[b]: [rows][kScoreStride]
  FloatBuffer table_row;  // one row of a table, or of the extra dimensions
  FloatBuffer extra_row;
  std::vector<RowState> states;  // of the rows
};

class ChunkScorer {
 public:
  ChunkScorer(const DecodePass& pass, Scratch& scratch, int64_t b, int64_t kv)
      : pass_(pass),
        call_(pass.call),
        tokens_(pass.call.Keys(b)),
        scratch_(scratch),
        b_(b),
        kv_(kv) {
    scratch_.scores.Resize(pass.rows * kScoreStride);
  }

  int64_t b() const { return b_; }
  int64_t kv() const { return kv_; }

  // What row r sees of keys [begin, end).
  Interval Seen(int64_t r, int64_t begin, int64_t end) const {
    const Interval seen = call_.VisibleKeys(b_, pass_.Query(r));
    const int64_t from = std::clamp(seen.begin, begin, end);
    return {from, std::clamp(seen.end, from, end)};
  }

  // Dot products of all rows with keys [keys.begin, keys.end): key j of row r
  // in column j - tile of row r of scratch.scores.
  void Scores(int64_t tile, Interval keys);

  // Adds the terms of row r to its scores s, by column.
  void AddTerms(int64_t r, int64_t tile, Interval keys, float* s);

  // The bucket of row r and key j; `map` is that of a table by offset.
  int32_t Bucket(const BucketMap& buckets, const std::optional<OffsetMap>& map,
                 int64_t r, int64_t j) const {
    const int64_t m = pass_.QueryPosition(b_, r), n = tokens_.Position(j);
    return map ? map->Bucket(m - n) : buckets(m, n);
  }

 private:
  // The span that key j belongs to.
  int64_t SpanOf(int64_t j) const {
    const std::vector<Span>& list = pass_.spans[pass_.Sequence(b_)];
    const auto after = std::ranges::upper_bound(list, j, {}, &Span::first);
    return after - list.begin() - 1;
  }
  // Cosines and sines that key j of the present span is rotated by.
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
    return {table.cos.data() + j * pairs, table.sin.data() + j * pairs};
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
  int64_t span_ = -1;  // that scratch.queries are rotated for
};

inline void ChunkScorer::Scores(int64_t tile, Interval keys) {
  float* scores = scratch_.scores.data();
  if (pass_.direct_keys) {
    WithType(call_.k.dtype(), [&]<typename T>() {
      const RowsOf<T> rows{call_.k.Head<T>(b_, kv_), call_.k.row_stride(),
                           tokens_.Order()};
      DotRows</*kFetch=*/true>(rows, keys.begin, keys.end,
                               pass_.Queries(b_, kv_), pass_.dim_pad,
                               pass_.rows, pass_.dim_pad,
                               scores + (keys.begin - tile), kScoreStride);
    });
    return;
  }
  scratch_.keys.Resize(kKeysInL1 * pass_.dim_pad);
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
      queries = scratch_.queries.data();
    }
    StageKeys(tile, j, end);
    const RowsOf<float> rows{scratch_.keys.data(), pass_.dim_pad, nullptr};
    DotRows</*kFetch=*/false>(rows, 0, end - j, queries, pass_.dim_pad,
                              pass_.rows, pass_.dim_pad, scores + (j - tile),
                              kScoreStride);
    j = end;
  }
}

// Keys [begin, end) as floats, rotated, in scratch.keys.
inline void ChunkScorer::StageKeys(int64_t tile, int64_t begin, int64_t end) {
  const bool rotates = pass_.key_rotation == KeyRotation::kRelative ||
                       pass_.key_rotation == KeyRotation::kAbsolute;
  if (rotates && pass_.whole_rotation) {
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
        RotateWholeRow(*call_.terms.rotate, cos, sin, row,
                       scratch_.keys.data() + (j - begin) * pass_.dim_pad);
      }
    });
    return;
  }
  for (int64_t j = begin; j < end; ++j) {
    StageRow(call_.k, b_, kv_, tokens_.source[static_cast<size_t>(j)],
             pass_.dim_pad, scratch_.keys.data() + (j - begin) * pass_.dim_pad);
  }
  if (pass_.k_rows) DotKeyTable(tile, begin, end);
  if (!rotates) return;
  for (int64_t j = begin; j < end; ++j) {
    const auto [cos, sin] = KeyAngles(j);
    float* key = scratch_.keys.data() + (j - begin) * pass_.dim_pad;
    RotateRow(*call_.terms.rotate, cos, sin, key, key);
  }
}

// Queries rotated by m - n0 for the span of keys from n0 on.
inline void ChunkScorer::RotateQueries(int64_t span) {
  if (span == span_) return;
  span_ = span;
  const Rotation& r = *call_.terms.rotate;
  scratch_.queries.Resize(pass_.rows * pass_.dim_pad);
  std::copy_n(pass_.Queries(b_, kv_), pass_.rows * pass_.dim_pad,
              scratch_.queries.data());
  for (int64_t row = 0; row < pass_.rows; ++row) {
    const float* cos = pass_.SpanAngles(b_, span, row % pass_.count);
    float* query = scratch_.queries.data() + row * pass_.dim_pad;
    RotateRow(r, cos, cos + r.NumPairs(), query, query);
  }
}

// k_j.Tk[b] of the staged, still unrotated keys, for every row.
inline void ChunkScorer::DotKeyTable(int64_t tile, int64_t begin, int64_t end) {
  const BucketTable& table = *call_.terms.k_table;
  scratch_.key_dots.Resize(pass_.rows * kScoreStride);
  scratch_.table_row.Resize(pass_.dim_pad);
  for (int64_t r = 0; r < pass_.rows; ++r) {
    const int64_t h = table.rows.size(0) == 1 ? 0 : pass_.Head(kv_, r);
    int32_t loaded = -1;
    for (int64_t j = begin; j < end; ++j) {
      const Interval seen = Seen(r, j, j + 1);
      if (seen.begin == seen.end) continue;
      const int32_t bucket = Bucket(table.buckets, pass_.k_map, r, j);
      if (bucket != loaded) {
        StageRow(*pass_.k_rows, 0, h, bucket, pass_.dim_pad,
                 scratch_.table_row.data());
        loaded = bucket;
      }
      scratch_.key_dots.data()[r * kScoreStride + j - tile] =
          Dot(scratch_.keys.data() + (j - begin) * pass_.dim_pad,
              scratch_.table_row.data(), pass_.dim_pad);
    }
  }
}

inline void ChunkScorer::AddTerms(int64_t r, int64_t tile, Interval keys,
                                  float* s) {
  s -= tile;  // by key
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
    scratch_.table_row.Resize(pass_.dim_pad);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      StageRow(*pass_.q_rows, 0, head, Bucket(terms.q_table->buckets, {}, r, j),
               pass_.dim_pad, scratch_.table_row.data());
      s[j] +=
          Dot(pass_.plain.data() + pass_.RowIndex(b_, kv_, r) * pass_.dim_pad,
              scratch_.table_row.data(), pass_.dim_pad);
    }
  }
  if (pass_.k_rows) {
    const float scale = pass_.operands.ScaleOf(m);
    const float* dots = scratch_.key_dots.data() + r * kScoreStride - tile;
    for (int64_t j = keys.begin; j < keys.end; ++j) s[j] += scale * dots[j];
  }
  if (pass_.bias) pass_.bias->Add(h, m, tokens_, keys, s);
  if (call_.softcap > 0.0F) {
    SoftCapRow(call_.softcap, keys.size(), s + keys.begin);
  }
}

// s_j += scale a_i.c_j.
inline void ChunkScorer::AddExtra(int64_t h, int64_t m, Interval keys,
                                  float* s) {
  const ExtraDot& dot = *call_.terms.extra_dot;
  const int64_t padded = AlignUp(dot.q_rows.size(2), kLanesI);
  scratch_.table_row.Resize(padded);
  scratch_.extra_row.Resize(padded);
  StageRow(*pass_.extra_q, 0, dot.q_rows.size(0) == 1 ? 0 : h,
           m - dot.first_position, padded, scratch_.extra_row.data());
  SetScaled(pass_.operands.ScaleOf(m), scratch_.extra_row.data(), padded,
            scratch_.extra_row.data());
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const int64_t n = tokens_.Position(j);
    StageRow(*pass_.extra_k, 0, dot.k_rows.size(0) == 1 ? 0 : h,
             n - dot.first_position, padded, scratch_.table_row.data());
    s[j] += Dot(scratch_.extra_row.data(), scratch_.table_row.data(), padded);
  }
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_SCORE_INL_H_

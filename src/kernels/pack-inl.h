// Operands packed for the micro-kernel, once a call: keys in panels, tables in
// panels by rel, biases by rel. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_PACK_INL_H_
#endif

#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/fail.h"
#include "core/threads.h"
#include "kernels/call.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::Call;
using kernels::RelMap;
using kernels::RotationTable;
using kernels::Run;
using kernels::Tokens;

// Scores live in the domain of exp2: every logit is multiplied by log2(e).
constexpr double kLog2E = 1.4426950408889634;

// Columns of the panels that hold n keys.
constexpr int64_t PaddedCols(int64_t n) {
  return (n + static_cast<int64_t>(kCols) - 1) / static_cast<int64_t>(kCols) *
         static_cast<int64_t>(kCols);
}

// Writes x[0 .. depth) as column `col` of panels [cols / kCols][depth][kCols].
inline void WriteColumn(const float* x, int64_t depth, int64_t col,
                        float* panels) {
  constexpr int64_t kWide = static_cast<int64_t>(kCols);
  float* to = panels + col / kWide * (depth * kWide) + col % kWide;
  for (int64_t d = 0; d < depth; ++d) to[d * kWide] = x[d];
}

// A table by rel with room to read one vector past either end: values
// saturate, so a read that starts outside finds the end value repeated.
//   [kLanes x first] [width values] [kLanes x last]
constexpr int64_t kRelPad = static_cast<int64_t>(kLanes);

inline void PadRel(float* row, int64_t width) {
  std::fill_n(row, kRelPad, row[kRelPad]);
  std::fill_n(row + kRelPad + width, kRelPad, row[kRelPad + width - 1]);
}

// Where a vector whose first lane is rel starts in such a row.
inline int64_t RelStart(int64_t rel, int64_t first, int64_t width) {
  const int64_t at = rel - first + kRelPad;
  return at < 0 ? 0 : at > width + kRelPad ? width + kRelPad : at;
}

// A table of rows by bucket, by rel, in panels: [heads][cols / kCols][D][kCols]
// where column e is the row of rel = map.first + e.
struct PackedTable {
  PackedTable(const BucketTable& table, const Shape& shape, int threads);

  const float* Head(int64_t h) const {
    return panels.data() + (heads == 1 ? 0 : h) * cols * dim;
  }

  RelMap map;
  int64_t heads = 0, dim = 0, cols = 0;
  FloatBuffer panels;
};

inline PackedTable::PackedTable(const BucketTable& table, const Shape& shape,
                                int threads)
    : map(table.buckets, shape),
      heads(table.rows.size(0)),
      dim(table.rows.size(2)),
      cols(PaddedCols(map.width())),
      panels(heads * cols * dim) {
  const Tensor& rows = table.rows;
  ParallelFor(heads, threads, [&](int64_t h) {
    float* to = panels.data() + h * cols * dim;
    std::vector<float> row(static_cast<size_t>(dim));
    for (int64_t e = 0; e < cols; ++e) {
      // Past the last rel the end value repeats: no garbage in the panels.
      const int64_t at = std::min(e, map.width() - 1);
      const int64_t bucket = map.bucket[static_cast<size_t>(at)];
      for (int64_t d = 0; d < dim; ++d) {
        row[static_cast<size_t>(d)] = static_cast<float>(rows.At(h, bucket, d));
      }
      WriteColumn(row.data(), dim, e, to);
    }
  });
}

// A table of rows by rel, row-major: [heads][width][stride], rows padded with
// zeros to whole panels.
struct PackedRows {
  PackedRows(const BucketTable& table, const Shape& shape)
      : map(table.buckets, shape),
        heads(table.rows.size(0)),
        stride(PaddedCols(table.rows.size(2))),
        rows(heads * map.width() * stride) {
    const int64_t dim = table.rows.size(2);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < map.width(); ++e) {
        float* row = rows.data() + (h * map.width() + e) * stride;
        const int64_t bucket = map.bucket[static_cast<size_t>(e)];
        for (int64_t d = 0; d < stride; ++d) {
          row[d] =
              d < dim ? static_cast<float>(table.rows.At(h, bucket, d)) : 0.0F;
        }
      }
    }
  }
  const float* Head(int64_t h) const {
    return rows.data() + (heads == 1 ? 0 : h) * map.width() * stride;
  }

  RelMap map;
  int64_t heads = 0, stride = 0;
  FloatBuffer rows;
};

// The bias by rel: padded rows [heads][width + 2 kRelPad], times log2(e).
struct PackedBias {
  PackedBias(const BiasTable& table, const Shape& shape)
      : map(table.buckets, shape),
        heads(table.values.size(0)),
        stride(map.width() + 2 * kRelPad),
        rows(heads * stride) {
    for (int64_t h = 0; h < heads; ++h) {
      float* row = rows.data() + h * stride;
      for (int64_t e = 0; e < map.width(); ++e) {
        row[kRelPad + e] = Value(table, h, map.bucket[static_cast<size_t>(e)]);
      }
      PadRel(row, map.width());
    }
  }
  static float Value(const BiasTable& table, int64_t h, int64_t bucket) {
    return static_cast<float>(
        kLog2E * table.values.At(table.values.size(0) == 1 ? 0 : h, bucket));
  }
  const float* Row(int64_t h) const {
    return rows.data() + (heads == 1 ? 0 : h) * stride;
  }

  RelMap map;
  int64_t heads = 0, stride = 0;
  FloatBuffer rows;
};

// Everything a call's tasks share and do not change.
struct Packed {
  Packed(const Call& c, int n_threads);

  // Panels of the keys that query head h of sequence b meets.
  const float* Keys(int64_t b, int64_t h) const {
    const int64_t head = per_query_head ? h : call.KvHead(h);
    return keys.data() + (b * pack_heads + head) * cols * depth;
  }
  // Values of keys j onwards, columns [c, c + kCols): rows kCols floats apart.
  const float* Values(int64_t b, int64_t h, int64_t j, int64_t c) const {
    const int64_t head = b * call.sizes.kv_heads + call.KvHead(h);
    return values.data() + head * call.sizes.k_len * value_cols +
           c * call.sizes.k_len + j * static_cast<int64_t>(kCols);
  }
  const RotationTable& QueryAngles(int64_t b) const {
    return q_angles[call.shared ? 0 : static_cast<size_t>(b)];
  }
  const RotationTable& KeyAngles(int64_t b) const {
    return k_angles[call.shared ? 0 : static_cast<size_t>(b)];
  }
  // Key j of (b, kv head) with its extra dimensions for query head h: [depth].
  void LoadKey(int64_t b, int64_t h, int64_t j, float* row) const;
  // Query i likewise, times scale * log2(e): [depth] rotated, and [D] plain.
  void LoadQuery(int64_t b, int64_t h, int64_t i, float* dot,
                 float* plain) const;
  // scale_i * log2(e).
  float ScaleOf(int64_t position) const {
    return static_cast<float>(call.terms.scale.At(position) * kLog2E);
  }
  bool values_finite = true;

  const Call& call;
  int threads;
  int64_t extra = 0;       // extra dimensions of the dot product
  int64_t depth = 0;       // head_dim + extra
  int64_t cols = 0;        // padded keys
  int64_t value_cols = 0;  // value_dim, padded
  int64_t pack_heads = 0;
  bool per_query_head = false;
  // u.k_j for every offset is (q + u).k_j: a key table of one bucket moves
  // into the query where nothing rotates.
  bool fold_key_row = false;
  std::vector<RotationTable> q_angles, k_angles;
  FloatBuffer keys, values;
  std::unique_ptr<PackedTable> q_table;
  bool q_table_band = false;  // too wide to multiply whole: by tile
  std::unique_ptr<PackedBias> bias;
  std::unique_ptr<PackedRows> v_table;
  RelMap k_map;  // of the key table, unless it is folded
};

inline void Packed::LoadKey(int64_t b, int64_t h, int64_t j, float* row) const {
  const Tokens& tokens = call.Keys(b);
  const size_t at = static_cast<size_t>(j);
  call.k.Load(b, call.KvHead(h), tokens.source[at], row);
  if (call.terms.rotate) {
    kernels::RotateRow(*call.terms.rotate, KeyAngles(b), j, row);
  }
  if (extra > 0) {
    const ExtraDot& dot = *call.terms.extra_dot;
    const int64_t r = tokens.position[at] - dot.first_position;
    const int64_t head = dot.k_rows.size(0) == 1 ? 0 : h;
    for (int64_t e = 0; e < extra; ++e) {
      row[call.sizes.head_dim + e] =
          static_cast<float>(dot.k_rows.At(head, r, e));
    }
  }
}

inline void Packed::LoadQuery(int64_t b, int64_t h, int64_t i, float* dot_row,
                              float* plain) const {
  const Tokens& tokens = call.Queries(b);
  const size_t at = static_cast<size_t>(i);
  const int64_t dim = call.sizes.head_dim;
  const float scale = ScaleOf(tokens.position[at]);
  call.q.Load(b, h, tokens.source[at], plain);
  std::copy_n(plain, dim, dot_row);
  if (fold_key_row) {
    const Tensor& u = call.terms.k_table->rows;
    for (int64_t d = 0; d < dim; ++d) {
      dot_row[d] += static_cast<float>(u.At(u.size(0) == 1 ? 0 : h, 0, d));
    }
  }
  if (call.terms.rotate) {
    kernels::RotateRow(*call.terms.rotate, QueryAngles(b), i, dot_row);
  }
  if (extra > 0) {
    const ExtraDot& dot = *call.terms.extra_dot;
    const int64_t r = tokens.position[at] - dot.first_position;
    const int64_t head = dot.q_rows.size(0) == 1 ? 0 : h;
    for (int64_t e = 0; e < extra; ++e) {
      dot_row[dim + e] = static_cast<float>(dot.q_rows.At(head, r, e));
    }
  }
  for (int64_t d = 0; d < dim; ++d) plain[d] *= scale;
  for (int64_t d = 0; d < depth; ++d) dot_row[d] *= scale;
}

inline Packed::Packed(const Call& c, int n_threads)
    : call(c), threads(n_threads) {
  const CallSizes& s = call.sizes;
  const Terms& terms = call.terms;
  if (terms.extra_dot) extra = terms.extra_dot->q_rows.size(2);
  depth = s.head_dim + extra;
  cols = PaddedCols(s.k_len);
  per_query_head = extra > 0 && terms.extra_dot->k_rows.size(0) > 1;
  pack_heads = per_query_head ? s.q_heads : s.kv_heads;
  fold_key_row =
      terms.k_table && terms.k_table->buckets.count == 1 && !terms.rotate;

  if (terms.rotate) {
    const Rotation& r = *terms.rotate;
    // Decays are split between query and key around the middle, so that
    // neither overflows float32 over a long range.
    const int64_t lo = call.shape.MinPosition(), hi = call.shape.MaxPosition();
    const int64_t origin = lo + (hi - lo) / 2;
    double steepest = 0.0;
    for (double d : r.log_decay) steepest = std::max(steepest, std::abs(d));
    // exp(80) = 5e34: a product of two such gains with ordinary q and k stays
    // finite, and what underflows is below 1e-30 of the score.
    if (steepest * static_cast<double>(hi - lo) / 2.0 > 80.0) {
      Fail(
          "a decaying rotation covers at most {:.0f} positions in float32, "
          "got {} .. {}",
          160.0 / steepest, lo, hi);
    }
    for (const Tokens& t : call.queries)
      q_angles.emplace_back(r, t, 1.0, origin);
    for (const Tokens& t : call.keys) k_angles.emplace_back(r, t, -1.0, origin);
  }

  keys.Resize(s.batch * pack_heads * cols * depth);
  const int64_t panels = cols / static_cast<int64_t>(kCols);
  // A task packs up to 16 panels of one head.
  constexpr int64_t kPanelsPerTask = 16;
  const int64_t chunks = (panels + kPanelsPerTask - 1) / kPanelsPerTask;
  ParallelFor(s.batch * pack_heads * chunks, threads, [&](int64_t task) {
    const int64_t chunk = task % chunks;
    const int64_t head = task / chunks % pack_heads;
    const int64_t b = task / chunks / pack_heads;
    const int64_t h = per_query_head ? head : head * (s.q_heads / s.kv_heads);
    float* to = keys.data() + (b * pack_heads + head) * cols * depth;
    std::vector<float> row(static_cast<size_t>(depth));
    const int64_t end = std::min(
        cols, (chunk + 1) * kPanelsPerTask * static_cast<int64_t>(kCols));
    for (int64_t j = chunk * kPanelsPerTask * static_cast<int64_t>(kCols);
         j < end; ++j) {
      if (j < call.Keys(b).size()) {
        LoadKey(b, h, j, row.data());
      } else {
        std::fill(row.begin(), row.end(), 0.0F);
      }
      WriteColumn(row.data(), depth, j, to);
    }
  });

  // Values in panels of kCols columns, [Dv / kCols][keys][kCols], so that a
  // panel is read in one stretch.
  value_cols = PaddedCols(s.value_dim);
  values.Resize(s.batch * s.kv_heads * s.k_len * value_cols);
  std::atomic<bool> finite{true};
  ParallelFor(s.batch * s.kv_heads, threads, [&](int64_t task) {
    const int64_t b = task / s.kv_heads, kv = task % s.kv_heads;
    constexpr int64_t kWide = static_cast<int64_t>(kCols);
    float* to = values.data() + task * s.k_len * value_cols;
    std::vector<float> row(static_cast<size_t>(value_cols), 0.0F);
    float sum = 0.0F;  // x * 0 is 0 for finite x, NaN otherwise
    for (int64_t j = 0; j < call.Keys(b).size(); ++j) {
      call.v.Load(b, kv, call.Keys(b).source[static_cast<size_t>(j)],
                  row.data());
      VF part = hn::Zero(kDF);
      for (int64_t c = 0; c < value_cols; c += static_cast<int64_t>(kLanes)) {
        const VF x = hn::LoadU(kDF, row.data() + c);
        part = hn::MulAdd(x, hn::Zero(kDF), part);
        hn::StoreU(x, kDF,
                   to + c / kWide * (s.k_len * kWide) + j * kWide + c % kWide);
      }
      sum += hn::GetLane(hn::SumOfLanes(kDF, part));
    }
    if (sum != 0.0F) finite.store(false);
  });
  values_finite = finite.load();

  if (terms.q_table) {
    q_table =
        std::make_unique<PackedTable>(*terms.q_table, call.shape, threads);
    // Multiplying every row by the whole table costs width * D a row; by tile
    // it costs a band as wide as what the row sees. Half of the keys is where
    // the first wins, bookkeeping included.
    q_table_band =
        q_table->map.width() > 64 && 2 * q_table->map.width() > s.k_len;
  }
  if (terms.k_table && !fold_key_row) {
    k_map = RelMap(terms.k_table->buckets, call.shape);
  }
  if (terms.bias && std::holds_alternative<BiasTable>(*terms.bias)) {
    bias = std::make_unique<PackedBias>(std::get<BiasTable>(*terms.bias),
                                        call.shape);
  }
  if (terms.v_table) {
    v_table = std::make_unique<PackedRows>(*terms.v_table, call.shape);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_PACK_INL_H_

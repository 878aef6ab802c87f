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
#include <numeric>
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

// Writes `count` rows as columns of panels [cols / kCols][depth][kCols], from
// column `col` (a multiple of 4) on. row(n) gives row n, valid until the fifth
// call after it.
template <typename Row>
void WriteColumns(int64_t col, int64_t count, int64_t depth, const Row& row,
                  float* panels) {
  constexpr int64_t kWide = static_cast<int64_t>(kCols);
  static_assert(kCols % 4 == 0 || kCols == 2);
  const size_t deep = static_cast<size_t>(depth);
  int64_t n = 0;
  if constexpr (kCols % 4 == 0) {
    for (; n + 4 <= count; n += 4, col += 4) {
      float* to = panels + col / kWide * (depth * kWide) + col % kWide;
      const float* r0 = row(n);
      const float* r1 = row(n + 1);
      const float* r2 = row(n + 2);
      Transpose4(r0, r1, r2, row(n + 3), deep, to, kCols);
    }
  }
  for (; n < count; ++n, ++col) {
    const float* from = row(n);
    float* to = panels + col / kWide * (depth * kWide) + col % kWide;
    for (int64_t d = 0; d < depth; ++d) to[d * kWide] = from[d];
  }
}

// Rotating scratch for the row(n) of WriteColumns.
class FourRows {
 public:
  explicit FourRows(int64_t depth)
      : depth_(depth), rows_(static_cast<size_t>(4 * depth)) {}
  float* Next() {
    at_ = (at_ + 1) % 4;
    return rows_.data() + at_ * depth_;
  }

 private:
  int64_t depth_;
  int64_t at_ = 0;
  std::vector<float> rows_;
};

// Rows of the tokens of (b, head), unchanged, in panels of `cols` columns.
inline void PackRows(const kernels::Rows& rows, const Tokens& tokens, int64_t b,
                     int64_t head, int64_t cols, float* panels) {
  FourRows scratch(rows.dim());
  const std::vector<float> nothing(static_cast<size_t>(rows.dim()), 0.0F);
  WriteColumns(
      0, cols, rows.dim(),
      [&](int64_t j) {
        if (j >= tokens.size()) return nothing.data();
        const int64_t source = tokens.source[static_cast<size_t>(j)];
        const float* direct = rows.Direct(b, head, source);
        if (direct != nullptr) return direct;
        float* row = scratch.Next();
        rows.Load(b, head, source, row);
        return static_cast<const float*>(row);
      },
      panels);
}

// A table by rel with room to read one panel past either end: values saturate,
// so a read that starts outside finds the end value repeated.
//   [kCols x first] [width values] [kCols x last]
constexpr int64_t kRelPad = static_cast<int64_t>(kCols);

inline void PadRel(float* row, int64_t width) {
  std::fill_n(row, kRelPad, row[kRelPad]);
  std::fill_n(row + kRelPad + width, kRelPad, row[kRelPad + width - 1]);
}

// Where a vector or panel whose first lane is rel starts in such a row.
inline int64_t RelStart(int64_t rel, int64_t first, int64_t width) {
  return std::clamp<int64_t>(rel - first + kRelPad, 0, width + kRelPad);
}

// Row `i` of head `h` of a tensor [heads or 1, rows, D] as floats: itself, if
// it is float already, or converted to `scratch`.
inline const float* TableRow(const Tensor& t, int64_t h, int64_t i,
                             float* scratch) {
  const int64_t head = t.size(0) == 1 ? 0 : h;
  if (t.dtype() == DType::kF32 && t.strides()[2] == 1) {
    return t.Data<float>() + head * t.strides()[0] + i * t.strides()[1];
  }
  for (int64_t d = 0; d < t.size(2); ++d) {
    scratch[d] = static_cast<float>(t.At(head, i, d));
  }
  return scratch;
}

// A table of rows by bucket, laid out by rel: entry e is the row of
// rel = map.first + e. Holds a range of its heads at a time.
class TableByRel {
 public:
  TableByRel(const BucketTable& table, const Shape& shape)
      : map(table.buckets, shape),
        dim(table.rows.size(2)),
        rows_(table.rows),
        shared_(table.rows.size(0) == 1) {}

  RelMap map;
  int64_t dim = 0;

 protected:
  // Lays out heads [first, first + count), `size` floats each, unless they are
  // there already. write(h, to) writes one head.
  template <typename Write>
  void Hold(int64_t first, int64_t count, int64_t size, int threads,
            const Write& write) {
    if (shared_) {
      first = 0;
      count = 1;
    }
    if (first >= first_ && first + count <= first_ + count_) return;
    first_ = first;
    count_ = count;
    size_ = size;
    floats_.Resize(count * size);
    ParallelFor(count, threads, [&](int64_t n) {
      write(first + n, floats_.data() + n * size);
    });
  }
  const float* At(int64_t h) const {
    return floats_.data() + (shared_ ? 0 : h - first_) * size_;
  }
  // The row of entry e; past the last rel the end value repeats.
  const float* Row(int64_t h, int64_t e, float* scratch) const {
    const int64_t at = std::min(e, map.width() - 1);
    return TableRow(rows_, h, map.bucket[static_cast<size_t>(at)], scratch);
  }

 private:
  const Tensor& rows_;
  bool shared_;
  int64_t first_ = 0, count_ = 0, size_ = 0;
  FloatBuffer floats_;
};

// In panels: [cols / kCols][D][kCols] a head, entry e in column e.
class PackedTable : public TableByRel {
 public:
  PackedTable(const BucketTable& table, const Shape& shape)
      : TableByRel(table, shape), cols(PaddedCols(map.width())) {}
  void Pack(int64_t first_head, int64_t heads, int threads) {
    Hold(first_head, heads, cols * dim, threads, [&](int64_t h, float* to) {
      FourRows scratch(dim);
      WriteColumns(
          0, cols, dim, [&](int64_t e) { return Row(h, e, scratch.Next()); },
          to);
    });
  }
  const float* Head(int64_t h) const { return At(h); }

  int64_t cols = 0;
};

// Row-major: [width][stride] a head, rows padded with zeros to whole panels.
class PackedRows : public TableByRel {
 public:
  PackedRows(const BucketTable& table, const Shape& shape)
      : TableByRel(table, shape), stride(PaddedCols(dim)) {}
  void Pack(int64_t first_head, int64_t heads, int threads) {
    Hold(first_head, heads, map.width() * stride, threads,
         [&](int64_t h, float* to) {
           std::vector<float> scratch(static_cast<size_t>(dim));
           for (int64_t e = 0; e < map.width(); ++e) {
             float* row = to + e * stride;
             std::copy_n(Row(h, e, scratch.data()), dim, row);
             std::fill_n(row + dim, stride - dim, 0.0F);
           }
         });
  }
  const float* Head(int64_t h) const { return At(h); }

  int64_t stride = 0;
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
  // A ramp over the offsets that occur.
  PackedBias(const BiasRamp& ramp, const Shape& shape)
      : heads(static_cast<int64_t>(ramp.past.size())) {
    map.first = -shape.max_offset;
    // Every rel is its own bucket.
    map.bucket.resize(
        static_cast<size_t>(shape.max_offset - shape.min_offset + 1));
    std::iota(map.bucket.begin(), map.bucket.end(), 0);
    stride = map.width() + 2 * kRelPad;
    rows.Resize(heads * stride);
    for (int64_t h = 0; h < heads; ++h) {
      float* row = rows.data() + h * stride;
      const double past = ramp.past[static_cast<size_t>(h)] * kLog2E;
      const double future = -ramp.future[static_cast<size_t>(h)] * kLog2E;
      for (int64_t e = 0; e < map.width(); ++e) {
        const double rel = static_cast<double>(map.first + e);
        row[kRelPad + e] =
            static_cast<float>(rel * (rel < 0.0 ? past : future));
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

// Everything a call's tasks share. Keys, values and tables are packed for a
// range of units at a time: a unit is one key head of one sequence, number
// b * kv_heads + kv.
struct Packed {
  Packed(const Call& c, int n_threads);

  // Packs units [first, first + count).
  void Pack(int64_t first, int64_t count, bool with_values);

  // Where the operands of (b, h) lie among those of the packed units; keys
  // that are extended differ by query head.
  int64_t Unit(int64_t b, int64_t h) const {
    return b * call.sizes.kv_heads + call.KvHead(h) - first_unit;
  }
  int64_t KeyIndex(int64_t b, int64_t h) const {
    return Unit(b, h) * key_copies + (key_copies > 1 ? h % group : 0);
  }
  // The sequence and a query head of key copy n.
  std::pair<int64_t, int64_t> KeyOwner(int64_t n) const {
    const int64_t unit = first_unit + n / key_copies;
    return {unit / call.sizes.kv_heads,
            unit % call.sizes.kv_heads * group + n % key_copies};
  }

  // Panels of the keys that query head h of sequence b meets.
  const float* Keys(int64_t b, int64_t h) const {
    return keys.data() + KeyIndex(b, h) * cols * depth;
  }
  // Values of keys j onwards, columns [c, c + kCols): rows kCols floats apart.
  const float* Values(int64_t b, int64_t h, int64_t j, int64_t c) const {
    return values.data() + Unit(b, h) * call.sizes.k_len * value_cols +
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
  // The same, where it lies if nothing is to be done to it, else in `scratch`.
  const float* KeyRow(int64_t b, int64_t h, int64_t j, float* scratch) const {
    const Tokens& tokens = call.Keys(b);
    if (!call.terms.rotate && extra == 0) {
      const float* row = call.k.Direct(b, call.KvHead(h),
                                       tokens.source[static_cast<size_t>(j)]);
      if (row != nullptr) return row;
    }
    LoadKey(b, h, j, scratch);
    return scratch;
  }
  // Query i likewise, times scale * log2(e): [depth] rotated, and [D] plain.
  void LoadQuery(int64_t b, int64_t h, int64_t i, float* dot,
                 float* plain) const;
  // Appends row r of an extra table to the head_dim channels of a row.
  void LoadExtra(const Tensor& rows, int64_t h, int64_t r, float* row) const {
    float* to = row + call.sizes.head_dim;
    const float* from = TableRow(rows, h, r, to);
    if (from != to) std::copy_n(from, extra, to);
  }
  // scale_i * log2(e).
  float ScaleOf(int64_t position) const {
    return static_cast<float>(call.terms.scale.At(position) * kLog2E);
  }
  const Call& call;
  int threads;
  int64_t extra = 0;       // extra dimensions of the dot product
  int64_t depth = 0;       // head_dim + extra
  int64_t cols = 0;        // padded keys
  int64_t value_cols = 0;  // value_dim, padded
  int64_t group = 1;       // query heads a key head
  int64_t key_copies = 1;  // of each key: group if extended by query head
  int64_t first_unit = 0, units = 0;  // packed now
  int64_t first_head = 0, heads = 0;  // the query heads they serve
  // u.k_j for every offset is (q + u).k_j: a key table of one bucket moves
  // into the query where nothing rotates.
  bool fold_key_row = false;
  std::vector<RotationTable> q_angles, k_angles;
  FloatBuffer keys, values;
  bool values_finite = true;
  std::unique_ptr<PackedTable> q_table;
  bool q_table_band = false;         // too wide to multiply whole: by tile
  std::unique_ptr<PackedBias> bias;  // a table or a ramp by rel
  std::unique_ptr<PackedRows> v_table;
  RelMap k_map;  // of the key table, unless it is folded

 private:
  void PackKeys();
  void PackValues();
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
    LoadExtra(dot.k_rows, h, tokens.position[at] - dot.first_position, row);
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
    std::vector<float> scratch(static_cast<size_t>(dim));
    const float* u = TableRow(call.terms.k_table->rows, h, 0, scratch.data());
    for (int64_t d = 0; d < dim; ++d) dot_row[d] += u[d];
  }
  if (call.terms.rotate) {
    kernels::RotateRow(*call.terms.rotate, QueryAngles(b), i, dot_row);
  }
  if (extra > 0) {
    const ExtraDot& dot = *call.terms.extra_dot;
    LoadExtra(dot.q_rows, h, tokens.position[at] - dot.first_position, dot_row);
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
  group = s.kv_heads > 0 ? s.q_heads / s.kv_heads : 1;
  if (extra > 0 && terms.extra_dot->k_rows.size(0) > 1) key_copies = group;
  value_cols = PaddedCols(s.value_dim);
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

  if (terms.q_table) {
    q_table = std::make_unique<PackedTable>(*terms.q_table, call.shape);
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
  if (terms.bias && std::holds_alternative<BiasRamp>(*terms.bias)) {
    // As a row by rel, unless positions lie so far apart that a row would be
    // longer than the call.
    const int64_t span = call.shape.max_offset - call.shape.min_offset;
    if (span >= 0 && span <= 4 * (s.q_len + s.k_len)) {
      bias = std::make_unique<PackedBias>(std::get<BiasRamp>(*terms.bias),
                                          call.shape);
    }
  }
  if (terms.v_table) {
    v_table = std::make_unique<PackedRows>(*terms.v_table, call.shape);
  }
}

inline void Packed::Pack(int64_t first, int64_t count, bool with_values) {
  const CallSizes& s = call.sizes;
  first_unit = first;
  units = count;
  // Units of one sequence need the tables of their own heads only.
  const bool one_sequence =
      first / s.kv_heads == (first + count - 1) / s.kv_heads;
  first_head = one_sequence ? first % s.kv_heads * group : 0;
  heads = one_sequence ? count * group : s.q_heads;
  PackKeys();
  if (with_values) PackValues();
  if (q_table) q_table->Pack(first_head, heads, threads);
  if (v_table) v_table->Pack(first_head, heads, threads);
}

inline void Packed::PackKeys() {
  keys.Resize(units * key_copies * cols * depth);
  const int64_t panels = cols / static_cast<int64_t>(kCols);
  // A task packs up to 16 panels of one head.
  constexpr int64_t kPanelsPerTask = 16;
  const int64_t chunks = (panels + kPanelsPerTask - 1) / kPanelsPerTask;
  ParallelFor(units * key_copies * chunks, threads, [&](int64_t task) {
    const int64_t chunk = task % chunks;
    const auto [b, h] = KeyOwner(task / chunks);
    float* to = keys.data() + task / chunks * cols * depth;
    const int64_t begin = chunk * kPanelsPerTask * static_cast<int64_t>(kCols);
    const int64_t end =
        std::min(cols, begin + kPanelsPerTask * static_cast<int64_t>(kCols));
    FourRows scratch(depth);
    const std::vector<float> nothing(static_cast<size_t>(depth), 0.0F);
    const int64_t present = call.Keys(b).size();
    WriteColumns(
        begin, end - begin, depth,
        [&, b = b, h = h](int64_t n) {
          const int64_t j = begin + n;
          return j < present ? KeyRow(b, h, j, scratch.Next()) : nothing.data();
        },
        to);
  });
}

// Values in panels of kCols columns, [Dv / kCols][keys][kCols], so that a
// panel is read in one stretch.
inline void Packed::PackValues() {
  const CallSizes& s = call.sizes;
  values.Resize(units * s.k_len * value_cols);
  constexpr int64_t kKeysPerTask = 512;
  const int64_t parts = (s.k_len + kKeysPerTask - 1) / kKeysPerTask;
  std::atomic<bool> finite{true};
  ParallelFor(units * parts, threads, [&](int64_t task) {
    const int64_t unit = task / parts;
    const int64_t b = (first_unit + unit) / s.kv_heads;
    const int64_t kv = (first_unit + unit) % s.kv_heads;
    const int64_t begin = task % parts * kKeysPerTask;
    const int64_t end = std::min(begin + kKeysPerTask, call.Keys(b).size());
    constexpr int64_t kWide = static_cast<int64_t>(kCols);
    float* to = values.data() + unit * s.k_len * value_cols;
    std::vector<float> padded(static_cast<size_t>(value_cols), 0.0F);
    VF sum = hn::Zero(kDF);  // x * 0 is 0 for finite x, NaN otherwise
    for (int64_t j = begin; j < end; ++j) {
      const int64_t source = call.Keys(b).source[static_cast<size_t>(j)];
      const float* row =
          value_cols == s.value_dim ? call.v.Direct(b, kv, source) : nullptr;
      if (row == nullptr) {
        call.v.Load(b, kv, source, padded.data());
        row = padded.data();
      }
      for (int64_t c = 0; c < value_cols; c += static_cast<int64_t>(kLanes)) {
        const VF x = hn::LoadU(kDF, row + c);
        sum = hn::MulAdd(x, hn::Zero(kDF), sum);
        hn::StoreU(x, kDF,
                   to + c / kWide * (s.k_len * kWide) + j * kWide + c % kWide);
      }
    }
    if (hn::GetLane(hn::SumOfLanes(kDF, sum)) != 0.0F) finite.store(false);
  });
  values_finite = finite.load();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_PACK_INL_H_

// Keys, values and queries packed for the micro-kernel. Included once a SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#endif

#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/fail.h"
#include "core/threads.h"
#include "kernels/plan/call.h"
#include "kernels/rotary/rotate_row-inl.h"
#include "kernels/terms/offset_rows-inl.h"
#include "kernels/terms/profile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::Call;
using kernels::RotationTable;
using kernels::Run;

// Rows are asked for while this many before them are packed: rows of four are
// read side by side, which the hardware's own streams follow poorly.
constexpr int64_t kRowsAhead = 8;

// Sizes and tables that the heads of a call share. Copies share the tables.
struct PackedTables {
  PackedTables(const Call& c, int n_threads);

  // Lays out the tables of query heads [first, first + count).
  void PackTables(int64_t first, int64_t count) const {
    if (q_table) q_table->Pack(first, count, threads);
    if (v_table) v_table->Pack(first, count, threads);
  }

  const RotationTable& QueryAngles(int64_t b) const {
    return (*q_angles)[call.shared ? 0 : static_cast<size_t>(b)];
  }
  const RotationTable& KeyAngles(int64_t b) const {
    return (*k_angles)[call.shared ? 0 : static_cast<size_t>(b)];
  }
  // Key j of (b, kv head) with its extra dimensions for query head h: [depth].
  void LoadKey(int64_t b, int64_t h, int64_t j, float* row) const;
  // The same, where it lies if nothing is to be done to it, else in `scratch`.
  const float* KeyRow(int64_t b, int64_t h, int64_t j, float* scratch) const {
    const Tokens& tokens = call.Keys(b);
    if (!call.terms.rotate && extra == 0) {
      const float* row = call.k.Direct(b, call.KvHead(h),
                                       tokens.source[static_cast<size_t>(j)]);
      if (row != nullptr) {
        FetchRow(row + kRowsAhead * call.k.row_stride(), call.sizes.head_dim);
        return row;
      }
    }
    LoadKey(b, h, j, scratch);
    return scratch;
  }
  // Query i likewise, times scale * log2(e): [depth] rotated, and [D] plain
  // unless that is nullptr.
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
  int64_t Units() const { return call.sizes.batch * call.sizes.kv_heads; }

  const Call& call;
  int threads;
  int64_t extra = 0;       // extra dimensions of the dot product
  int64_t depth = 0;       // head_dim + extra
  int64_t cols = 0;        // padded keys
  int64_t value_cols = 0;  // value_dim, padded
  int64_t group = 1;       // query heads a key head
  int64_t key_copies = 1;  // of each key: group if extended by query head
  // u.k_j for every offset is (q + u).k_j: a key table of one bucket moves
  // into the query where nothing rotates.
  bool fold_key_row = false;
  std::shared_ptr<const std::vector<RotationTable>> q_angles, k_angles;
  std::shared_ptr<PackedTable> q_table;
  bool q_table_band = false;  // too wide to multiply whole: by tile
  std::shared_ptr<const PackedBias> bias;  // a table or a ramp by rel
  std::shared_ptr<const ProfileByRel> profile;
  std::shared_ptr<PackedRows> v_table;
  RelMap k_map;  // of the key table, unless it is folded
};

// The tables, and keys and values of a range of units: a unit is one key head
// of one sequence, number b * kv_heads + kv.
struct Packed : PackedTables {
  explicit Packed(const PackedTables& tables) : PackedTables(tables) {}

  // Packs units [first, first + count).
  void Pack(int64_t first, int64_t count, bool with_values) {
    first_unit = first;
    units = count;
    PackKeys();
    if (with_values) PackValues();
  }

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
  bool ValuesFinite(int64_t b, int64_t h) const {
    return finite[static_cast<size_t>(Unit(b, h))] != 0;
  }

  int64_t first_unit = 0, units = 0;  // packed now
  FloatBuffer keys, values;
  std::vector<uint8_t> finite;  // whether all values of a unit are

 private:
  void PackKeys();
  void PackValues();
};

inline void PackedTables::LoadKey(int64_t b, int64_t h, int64_t j,
                                  float* row) const {
  const Tokens& tokens = call.Keys(b);
  const size_t at = static_cast<size_t>(j);
  call.k.Load(b, call.KvHead(h), tokens.source[at], row);
  if (call.terms.rotate) {
    RotateRow(*call.terms.rotate, KeyAngles(b), j, row);
  }
  if (extra > 0) {
    const ExtraDot& dot = *call.terms.extra_dot;
    LoadExtra(dot.k_rows, h, tokens.position[at] - dot.first_position, row);
  }
}

inline void PackedTables::LoadQuery(int64_t b, int64_t h, int64_t i,
                                    float* dot_row, float* plain) const {
  const Tokens& tokens = call.Queries(b);
  const size_t at = static_cast<size_t>(i);
  const int64_t dim = call.sizes.head_dim;
  const float scale = ScaleOf(tokens.position[at]);
  const float* row = call.q.Direct(b, h, tokens.source[at]);
  if (row == nullptr) {
    call.q.Load(b, h, tokens.source[at], dot_row);
    row = dot_row;
  }
  if (plain != nullptr) SetScaled(scale, row, dim, plain);
  if (!fold_key_row && !call.terms.rotate && extra == 0) {
    SetScaled(scale, row, dim, dot_row);
    return;
  }
  if (row != dot_row) std::copy_n(row, dim, dot_row);
  if (fold_key_row) {
    FourRows scratch(dim);
    const float* u = TableRow(call.terms.k_table->rows, h, 0, scratch.Next());
    AddScaled(1.0F, u, dim, dot_row);
  }
  if (call.terms.rotate) {
    RotateRow(*call.terms.rotate, QueryAngles(b), i, dot_row);
  }
  if (extra > 0) {
    const ExtraDot& dot = *call.terms.extra_dot;
    LoadExtra(dot.q_rows, h, tokens.position[at] - dot.first_position, dot_row);
  }
  SetScaled(scale, dot_row, depth, dot_row);
}

inline PackedTables::PackedTables(const Call& c, int n_threads)
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
    const int64_t origin = kernels::DecayOrigin(r, call.shape);
    const auto angles = [&](const std::vector<Tokens>& tokens, double sign) {
      auto of = std::make_shared<std::vector<RotationTable>>();
      for (const Tokens& t : tokens) {
        of->emplace_back(r, t.position, sign, origin, threads);
      }
      return of;
    };
    q_angles = angles(call.queries, 1.0);
    k_angles = angles(call.keys, -1.0);
  }

  if (terms.q_table) {
    q_table = std::make_shared<PackedTable>(*terms.q_table, call.shape);
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
    bias = std::make_shared<PackedBias>(std::get<BiasTable>(*terms.bias),
                                        call.shape);
  }
  if (terms.bias && std::holds_alternative<BiasRamp>(*terms.bias)) {
    // As a row by rel, unless positions lie so far apart that a row would be
    // longer than the call.
    const int64_t span = call.shape.max_offset - call.shape.min_offset;
    if (span >= 0 && span <= 4 * (s.q_len + s.k_len)) {
      bias = std::make_shared<PackedBias>(std::get<BiasRamp>(*terms.bias),
                                          call.shape);
    }
  }
  if (terms.bias && std::holds_alternative<BiasProfile>(*terms.bias)) {
    profile =
        std::make_shared<ProfileByRel>(std::get<BiasProfile>(*terms.bias));
  }
  if (terms.v_table) {
    v_table = std::make_shared<PackedRows>(*terms.v_table, call.shape);
  }
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
    const int64_t present = call.Keys(b).size();
    WriteColumns(
        begin, end - begin, depth,
        [&, b = b, h = h](int64_t n) {
          const int64_t j = begin + n;
          return j < present ? KeyRow(b, h, j, scratch.Next())
                             : scratch.Nothing();
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
  std::vector<uint8_t> part_finite(static_cast<size_t>(units * parts));
  ParallelFor(units * parts, threads, [&](int64_t task) {
    const int64_t unit = task / parts;
    const int64_t b = (first_unit + unit) / s.kv_heads;
    const int64_t kv = (first_unit + unit) % s.kv_heads;
    const int64_t begin = task % parts * kKeysPerTask;
    const int64_t end = std::min(begin + kKeysPerTask, call.Keys(b).size());
    float* to = values.data() + unit * s.k_len * value_cols;
    // Only for rows that must be converted or padded.
    std::vector<float> padded;
    VF sum0 = hn::Zero(kDF), sum1 = sum0;  // x * 0 is 0, or NaN
    for (int64_t j = begin; j < end; ++j) {
      const int64_t source = call.Keys(b).source[static_cast<size_t>(j)];
      const float* row =
          value_cols == s.value_dim ? call.v.Direct(b, kv, source) : nullptr;
      if (row == nullptr) {
        padded.resize(static_cast<size_t>(value_cols), 0.0F);
        call.v.Load(b, kv, source, padded.data());
        row = padded.data();
      } else {
        FetchRow(row + kRowsAhead * call.v.row_stride(), value_cols);
      }
      float* panel = to + j * kColsI;
      for (int64_t c = 0; c < value_cols; c += kColsI) {
        const VF x0 = hn::LoadU(kDF, row + c);
        const VF x1 = hn::LoadU(kDF, row + c + kLanesI);
        sum0 = hn::MulAdd(x0, hn::Zero(kDF), sum0);
        sum1 = hn::MulAdd(x1, hn::Zero(kDF), sum1);
        hn::StoreU(x0, kDF, panel);
        hn::StoreU(x1, kDF, panel + kLanesI);
        panel += s.k_len * kColsI;
      }
    }
    part_finite[static_cast<size_t>(task)] =
        hn::GetLane(hn::SumOfLanes(kDF, hn::Add(sum0, sum1))) == 0.0F;
  });
  finite.assign(static_cast<size_t>(units), 1);
  for (int64_t task = 0; task < units * parts; ++task) {
    finite[static_cast<size_t>(task / parts)] &=
        part_finite[static_cast<size_t>(task)];
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_

// Keys, values and queries packed for the micro-kernel, for the forward and the
// backward pass. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#endif

#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/terms/bias-inl.h"
#include "kernels/terms/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Rows are prefetched while this many before them are packed: rows of four are
// read side by side, which the hardware's own streams follow poorly.
constexpr int64_t kRowsAhead = 8;

// Sizes and tables that the heads of a call share. Copies share the tables.
struct PackedTables : OperandTerms {
  explicit PackedTables(const Call& c);

  // Lays out the tables of query heads [first, first + count).
  void PackTables(int64_t first, int64_t count) const {
    if (q_table) q_table->Pack(first, count, threads);
    if (v_table) v_table->Pack(first, count, threads);
  }

  RowAngles QueryAngles(int64_t b, int64_t i) const {
    if (!call.terms.rotate) return {};
    return {call.plan.q_angles[call.plan.tokens.Sequence(b)], i,
            call.terms.rotate->NumPairs()};
  }
  RowAngles KeyAngles(int64_t b, int64_t j) const {
    if (call.RotationOfKeys() == nullptr) return {};
    return {call.plan.k_angles[call.plan.tokens.Sequence(b)], j,
            call.terms.rotate->NumPairs()};
  }
  // Key j of (b, kv head) with its extra dimensions for query head h, [depth]:
  // where it lies if nothing is to be done to it, else in `scratch`.
  const float* KeyRow(int64_t b, int64_t h, int64_t j, float* scratch) const {
    const Tokens& tokens = call.Keys(b);
    const int64_t source = tokens.source[static_cast<size_t>(j)];
    if (call.RotationOfKeys() == nullptr && extra == 0) {
      const float* row = call.k.Direct(b, call.KvHead(h), source);
      if (row != nullptr) {
        FetchRow(row + kRowsAhead * call.k.row_stride(), call.sizes.head_dim);
        return row;
      }
    }
    call.k.Load(b, call.KvHead(h), source, scratch);
    FinishKey(h, tokens.Position(j), KeyAngles(b, j), scratch);
    return scratch;
  }
  // Query i likewise, times scale * log2(e): [depth] rotated, and [D] plain
  // unless that is nullptr.
  void LoadQuery(int64_t b, int64_t h, int64_t i, float* dot,
                 float* plain) const {
    const Tokens& tokens = call.Queries(b);
    const int64_t source = tokens.source[static_cast<size_t>(i)];
    const float* row = call.q.Direct(b, h, source);
    if (row == nullptr) {
      call.q.Load(b, h, source, dot);
      row = dot;
    }
    FinishQuery(h, tokens.Position(i), QueryAngles(b, i), row, dot, plain);
  }
  int64_t Units() const { return call.sizes.batch * call.sizes.kv_heads; }

  int threads;
  int64_t cols = 0;        // padded keys
  int64_t value_cols = 0;  // value_dim, padded
  int64_t group = 1;       // query heads per key head
  int64_t key_copies = 1;  // of each key: group if extended by query head
  std::shared_ptr<PackedTable> q_table;
  bool q_table_band = false;  // too wide to multiply whole: by tile
  std::shared_ptr<const BiasTerm> bias;
  std::shared_ptr<PackedRows> v_table;
  OffsetMap k_map;  // of the key table, unless it is folded
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

inline PackedTables::PackedTables(const Call& c)
    : OperandTerms(c, Extra::kAppended), threads(c.plan.threads) {
  const CallSizes& s = call.sizes;
  const Terms& terms = call.terms;
  cols = PaddedCols(s.k_len);
  group = s.kv_heads > 0 ? s.q_heads / s.kv_heads : 1;
  if (extra > 0 && terms.extra_dot->k_rows.size(0) > 1) key_copies = group;
  value_cols = PaddedCols(s.value_dim);
  if (terms.q_table) {
    q_table = std::make_shared<PackedTable>(*terms.q_table, call.shape);
    // Multiplying every row by the whole table costs width * D per row; by tile
    // it costs a band as wide as what the row sees. Half of the keys is where
    // the first wins, bookkeeping included.
    q_table_band =
        q_table->map.width() > 64 && 2 * q_table->map.width() > s.k_len;
  }
  if (terms.k_table && !fold_key_row) {
    k_map = OffsetMap(terms.k_table->buckets, call.shape);
  }
  if (terms.bias) {
    bias = std::make_shared<BiasTerm>(*terms.bias, s, call.shape,
                                      BiasTerm::Ramp::kRows);
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

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_

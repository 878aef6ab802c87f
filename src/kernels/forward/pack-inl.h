// Packs keys, values and queries for the micro-kernel of the forward and
// backward passes. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/terms/bias-inl.h"
#include "kernels/terms/operand_bias-inl.h"
#include "kernels/terms/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// How many rows ahead of packing are prefetched: four rows are read side by
// side, a pattern that hardware prefetchers follow poorly.
constexpr int64_t kRowsAhead = 8;

// Sizes and tables shared by the heads of a call. Copies share the tables.
struct PackedTables : OperandTerms {
  explicit PackedTables(const Call& c);

  // Allocates the tables of `heads` query heads at a time.
  void ReserveTables(int64_t heads) const {
    if (q_table) q_table->Reserve(heads, threads);
    if (v_table) v_table->Reserve(heads, threads);
  }
  // Packs the tables of query heads [first, first + count).
  void PackTables(int64_t first, int64_t count) const {
    if (q_table) q_table->Pack(first, count);
    if (v_table) v_table->Pack(first, count);
  }
  // Whether there is a key table that is not folded into the queries.
  bool HasKeyTable() const { return call.terms.k_table && !fold_key_row; }

  // Angles of query i of query head h, and of key or value j of a key head.
  RowAngles QueryAngles(int64_t b, int64_t h, int64_t i) const {
    if (!call.terms.rotate) return {};
    const RotationTable& table =
        call.plan.q_angles[call.plan.tokens.Sequence(b)];
    return {table, table.Row(h / group, i), call.terms.rotate->NumPairs()};
  }
  RowAngles KeyAngles(int64_t b, int64_t kv, int64_t j) const {
    if (call.RotationOfKeys() == nullptr) return {};
    const RotationTable& table =
        call.plan.k_angles[call.plan.tokens.Sequence(b)];
    return {table, table.Row(kv, j), call.terms.rotate->NumPairs()};
  }
  RowAngles ValueAngles(int64_t b, int64_t kv, int64_t j) const {
    if (!call.terms.rotate_values) return {};
    const RotationTable& table = call.ValueAngles(b);
    return {table, table.Row(kv, j),
            call.terms.rotate_values->rotation.NumPairs()};
  }
  // Angles that rotate the output of query i of query head h back, and its
  // gradient forward.
  RowAngles OutputAngles(int64_t b, int64_t h, int64_t i) const {
    if (!call.terms.rotate_values || !call.terms.rotate_values->relative) {
      return {};
    }
    const RotationTable& table = call.OutputAngles(b);
    return {table, table.Row(h / group, i),
            call.terms.rotate_values->rotation.NumPairs()};
  }
  // Value j of (b, kv head), [Dv]: in place if it is stored as f32 and not
  // rotated, else in `scratch`.
  const float* ValueRow(int64_t b, int64_t kv, int64_t j,
                        float* scratch) const {
    const int64_t source = call.Keys(b).source[static_cast<size_t>(j)];
    if (!call.terms.rotate_values) {
      const float* row = call.v.Direct(b, kv, source);
      if (row != nullptr) return row;
    }
    call.v.Load(b, kv, source, scratch);
    RotateValues(call, ValueAngles(b, kv, j), scratch);
    return scratch;
  }
  // Key j of (b, kv head) with its extra dimensions for query head h, [depth]:
  // in place if it is f32 and needs no rotation or extra dimensions, else in
  // `scratch`.
  const float* KeyRow(int64_t b, int64_t h, int64_t j, float* scratch) const {
    const Tokens& tokens = call.Keys(b);
    const int64_t source = tokens.source[static_cast<size_t>(j)];
    const int64_t kv = call.KvHead(h);
    if (call.RotationOfKeys() == nullptr && extra == 0) {
      const float* row = call.k.Direct(b, kv, source);
      if (row != nullptr) {
        PrefetchRow(row + kRowsAhead * call.k.row_stride(),
                    call.sizes.head_dim);
        return row;
      }
    }
    call.k.Load(b, kv, source, scratch);
    FinishKey(h, tokens.Position(j), KeyAngles(b, kv, j), scratch);
    return scratch;
  }
  // Loads query i, times scale * log2(e): `dot` [depth] rotated and with extra
  // dimensions, and unless nullptr, `plain` [table_dim] without rotation.
  void LoadQuery(int64_t b, int64_t h, int64_t i, float* dot,
                 float* plain) const {
    LoadScaled(b, h, i, ScaleOf(h, call.Queries(b).Position(i)), dot, plain);
  }
  // As LoadQuery, but not scaled.
  void LoadUnscaled(int64_t b, int64_t h, int64_t i, float* dot,
                    float* plain) const {
    LoadScaled(b, h, i, 1.0F, dot, plain);
  }
  HWY_INLINE void LoadScaled(int64_t b, int64_t h, int64_t i, float scale,
                             float* dot, float* plain) const {
    const Tokens& tokens = call.Queries(b);
    const int64_t source = tokens.source[static_cast<size_t>(i)];
    const float* row = call.q.Direct(b, h, source);
    if (row == nullptr) {
      call.q.Load(b, h, source, dot);
      row = dot;
    }
    if (plain != nullptr && table_queries) {
      table_queries->Load(b, h, source, plain);
    }
    FinishQuery(h, tokens.Position(i), scale, QueryAngles(b, h, i), row, dot,
                plain);
  }
  int64_t Units() const { return call.sizes.batch * call.sizes.kv_heads; }

  int threads;
  int64_t cols = 0;        // padded keys
  int64_t value_cols = 0;  // value_dim, padded
  int64_t group = 1;       // query heads per key head
  int64_t key_copies = 1;  // of each key: group if k_rows differ by head
  std::shared_ptr<PackedTable> q_table;
  bool q_table_band = false;  // too wide to multiply whole: per tile instead
  std::shared_ptr<const BiasTerm> bias;
  std::shared_ptr<const OperandBias> operand_bias;
  std::shared_ptr<PackedRows> v_table;
  OffsetMap k_map;  // of the key table, unless it is folded into the queries
};

// The tables, and the packed keys and values of a range of units. A unit is one
// key head of one sequence: number b * kv_heads + kv.
struct Packed : PackedTables {
  enum class Contents { kKeys, kKeysAndValues };
  // With room for `most` units, packed by `workers` threads.
  Packed(const PackedTables& tables, int64_t most, int workers,
         Contents contents);

  // Packs units [first, first + count).
  void Pack(int64_t first, int64_t count) {
    first_unit = first;
    units = count;
    PackKeys();
    if (with_values) PackValues();
  }
  // Scratch of a worker: FourRows::Floats of a key's or a value's width, or one
  // padded value.
  float* Scratch(int worker) {
    return scratch.data() + worker * ScratchFloats();
  }

  // The index of (b, h) among the packed units, and of its keys: copies per
  // query head if there are any.
  int64_t Unit(int64_t b, int64_t h) const {
    return b * call.sizes.kv_heads + call.KvHead(h) - first_unit;
  }
  int64_t KeyIndex(int64_t b, int64_t h) const {
    return Unit(b, h) * key_copies + (key_copies > 1 ? h % group : 0);
  }
  // The sequence of key copy n, and a query head that uses it.
  std::pair<int64_t, int64_t> KeyOwner(int64_t n) const {
    const int64_t unit = first_unit + n / key_copies;
    return {unit / call.sizes.kv_heads,
            unit % call.sizes.kv_heads * group + n % key_copies};
  }

  // Panels of the keys that query head h of sequence b uses.
  const float* Keys(int64_t b, int64_t h) const {
    return keys.data() + KeyIndex(b, h) * cols * depth;
  }
  // Values from key j on, columns [c, c + kCols): rows are kCols floats apart.
  const float* Values(int64_t b, int64_t h, int64_t j, int64_t c) const {
    return values.data() + Unit(b, h) * call.sizes.k_len * value_cols +
           c * call.sizes.k_len + j * static_cast<int64_t>(kCols);
  }
  bool ValuesFinite(int64_t b, int64_t h) const {
    return finite[static_cast<size_t>(Unit(b, h))] != 0;
  }

  const int workers;
  const bool with_values;
  int64_t first_unit = 0, units = 0;  // currently packed
  FloatBuffer keys, values, scratch;
  std::vector<uint8_t> finite;  // whether all values of a unit are finite

 private:
  static constexpr int64_t kKeysPerTask = 512;  // in packing values
  int64_t ValueParts() const {
    return (call.sizes.k_len + kKeysPerTask - 1) / kKeysPerTask;
  }
  int64_t ScratchFloats() const {
    return AlignUp(std::max({FourRows::Floats(depth), value_cols,
                             FourRows::Floats(call.sizes.value_dim)}),
                   16);
  }
  void PackKeys();
  void PackValues();

  std::vector<uint8_t> part_finite_;
};

inline Packed::Packed(const PackedTables& tables, int64_t most, int threads_of,
                      Contents contents)
    : PackedTables(tables),
      workers(threads_of),
      with_values(contents == Contents::kKeysAndValues),
      keys(most * key_copies * cols * depth),
      values(with_values ? most * call.sizes.k_len * value_cols : 0),
      scratch(most > 0 ? workers * ScratchFloats() : 0),
      finite(static_cast<size_t>(most)),
      part_finite_(static_cast<size_t>(most * ValueParts())) {}

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
    // Multiplying a row by the whole table costs width * D; a band per tile is
    // only as wide as the keys that the row sees. Bookkeeping included, the
    // whole table is faster up to about half as many entries as keys.
    q_table_band =
        q_table->map.width() > 64 && 2 * q_table->map.width() > s.k_len;
  }
  if (HasKeyTable()) {
    k_map = OffsetMap(terms.k_table->buckets, call.shape);
  }
  if (terms.bias) {
    bias = std::make_shared<BiasTerm>(*terms.bias, s, call.shape,
                                      BiasTerm::Ramp::kRows);
  }
  operand_bias = std::make_shared<OperandBias>(call);
  if (terms.v_table) {
    v_table = std::make_shared<PackedRows>(*terms.v_table, call.shape);
  }
}

inline void Packed::PackKeys() {
  const int64_t panels = cols / static_cast<int64_t>(kCols);
  // A task packs up to 16 panels of one head.
  constexpr int64_t kPanelsPerTask = 16;
  const int64_t chunks = (panels + kPanelsPerTask - 1) / kPanelsPerTask;
  const int64_t tasks = units * key_copies * chunks;
  ParallelFor(tasks, workers, [&](int64_t task, int worker) noexcept {
    const int64_t chunk = task % chunks;
    const auto [b, h] = KeyOwner(task / chunks);
    float* to = keys.data() + task / chunks * cols * depth;
    const int64_t begin = chunk * kPanelsPerTask * static_cast<int64_t>(kCols);
    const int64_t end =
        std::min(cols, begin + kPanelsPerTask * static_cast<int64_t>(kCols));
    FourRows rows(Scratch(worker), depth);
    const int64_t present = call.Keys(b).size();
    WriteColumns(
        begin, end - begin, depth,
        [&, b = b, h = h](int64_t n) {
          const int64_t j = begin + n;
          return j < present ? KeyRow(b, h, j, rows.Next()) : rows.Nothing();
        },
        to);
  });
}

// Packs values in panels of kCols columns, [Dv / kCols][keys][kCols], so that a
// panel is contiguous.
inline void Packed::PackValues() {
  const CallSizes& s = call.sizes;
  const int64_t parts = ValueParts();
  ParallelFor(units * parts, workers, [&](int64_t task, int worker) noexcept {
    const int64_t unit = task / parts;
    const int64_t b = (first_unit + unit) / s.kv_heads;
    const int64_t kv = (first_unit + unit) % s.kv_heads;
    const int64_t begin = task % parts * kKeysPerTask;
    const int64_t end = std::min(begin + kKeysPerTask, call.Keys(b).size());
    float* to = values.data() + unit * s.k_len * value_cols;
    // Used only for rows that must be rotated, converted or padded.
    float* padded = Scratch(worker);
    std::fill_n(padded, value_cols, 0.0F);
    VF sum0 = hn::Zero(kDF), sum1 = sum0;  // x * 0 is 0, or NaN
    for (int64_t j = begin; j < end; ++j) {
      const int64_t source = call.Keys(b).source[static_cast<size_t>(j)];
      const float* row = value_cols == s.value_dim && !call.terms.rotate_values
                             ? call.v.Direct(b, kv, source)
                             : nullptr;
      if (row == nullptr) {
        call.v.Load(b, kv, source, padded);
        RotateValues(call, ValueAngles(b, kv, j), padded);
        row = padded;
      } else {
        PrefetchRow(row + kRowsAhead * call.v.row_stride(), value_cols);
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
    part_finite_[static_cast<size_t>(task)] =
        hn::GetLane(hn::SumOfLanes(kDF, hn::Add(sum0, sum1))) == 0.0F;
  });
  std::fill_n(finite.begin(), units, uint8_t{1});
  for (int64_t task = 0; task < units * parts; ++task) {
    finite[static_cast<size_t>(task / parts)] &=
        part_finite_[static_cast<size_t>(task)];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_FORWARD_PACK_INL_H_

// Scores of a block of queries against a stretch of keys, with every term that
// touches them: the part that forward and backward share. Included once a SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_SCORE_INL_H_
#endif

#include <limits>

#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::Interval;

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int64_t kLanesI = static_cast<int64_t>(kLanes);
constexpr int64_t kRowsI = static_cast<int64_t>(kRows);
constexpr int64_t kColsI = static_cast<int64_t>(kCols);

constexpr int64_t AlignDown(int64_t n, int64_t to) { return n / to * to; }
constexpr int64_t AlignUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Up to kRows queries of one head, packed: operands [depth][kRows].
struct Block {
  int64_t b = 0, h = 0;
  int64_t first = 0;  // in sorted order
  int64_t count = 0;
  Interval sees[kRows];
  int64_t position[kRows];
  Interval any;            // the union of what the rows see
  bool linear = false;     // positions rise by one
  float* dot = nullptr;    // [depth][kRows], scaled, rotated, extended
  float* plain = nullptr;  // [D][kRows], scaled
  float* q_row = nullptr;  // q.Tq by rel, padded: [kRows][q_stride]
};

// k_j.Tk[b] for one head, by bucket: [buckets][cols].
class KeyTable {
 public:
  void Build(const Packed& packed, int64_t b, int64_t h);
  const float* Row(int64_t bucket) const {
    return values_.data() + bucket * cols_;
  }
  int64_t cols() const { return cols_; }

 private:
  int64_t cols_ = 0;
  FloatBuffer values_, plain_, table_;
};

inline void KeyTable::Build(const Packed& packed, int64_t b, int64_t h) {
  const Call& call = packed.call;
  const int64_t dim = call.sizes.head_dim;
  const Tensor& rows = call.terms.k_table->rows;
  const int64_t count = rows.size(1);
  cols_ = packed.cols;
  values_.Resize(AlignUp(count, kRowsI) * cols_);
  // The packed keys serve if they are neither rotated nor extended.
  const float* panels = packed.Keys(b, h);
  if (call.terms.rotate || packed.extra > 0) {
    plain_.Resize(cols_ * dim);
    std::vector<float> row(static_cast<size_t>(dim));
    for (int64_t j = 0; j < cols_; ++j) {
      std::fill(row.begin(), row.end(), 0.0F);
      if (j < call.Keys(b).size()) {
        call.k.Load(b, call.KvHead(h),
                    call.Keys(b).source[static_cast<size_t>(j)], row.data());
      }
      WriteColumn(row.data(), dim, j, plain_.data());
    }
    panels = plain_.data();
  }
  table_.Resize(dim * kRowsI);
  const int64_t head = rows.size(0) == 1 ? 0 : h;
  for (int64_t t = 0; t < count; t += kRowsI) {
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t r = 0; r < kRowsI; ++r) {
        table_.data()[d * kRowsI + r] =
            t + r < count ? static_cast<float>(rows.At(head, t + r, d)) : 0.0F;
      }
    }
    for (int64_t p = 0; p < cols_; p += kColsI) {
      Gemm<Into::kStore>(table_.data(), kRows, 1, panels + p * dim, kCols,
                         static_cast<size_t>(dim), nullptr,
                         values_.data() + t * cols_ + p,
                         static_cast<size_t>(cols_));
    }
  }
}

// Computes scores in the domain of exp2. One a thread: it owns scratch.
class Scorer {
 public:
  explicit Scorer(const Packed& p) : packed_(p), call_(p.call) {
    const Terms& terms = call_.terms;
    if (terms.bias) {
      ramp_ = std::get_if<BiasRamp>(&*terms.bias);
      profile_ = std::get_if<BiasProfile>(&*terms.bias);
      table_ = std::get_if<BiasTable>(&*terms.bias);
    }
    if (packed_.q_table && !packed_.q_table_band) {
      q_stride_ = packed_.q_table->cols + 2 * kRelPad;
    }
    use_key_table_ = terms.k_table && !packed_.fold_key_row;
  }

  // Floats that Prepare needs a block.
  int64_t BlockFloats() const {
    return AlignUp((packed_.depth + call_.sizes.head_dim + q_stride_) * kRowsI,
                   16);
  }
  // The key table must be of the block's head, if there is one.
  bool needs_key_table() const { return use_key_table_; }
  void SetKeyTable(const KeyTable* table) { key_table_ = table; }

  // Packs `count` queries from `first` on into `memory` [BlockFloats].
  void Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
               float* memory, Block& block) const;

  // Scores of the block against keys [lo, hi), inside [tile, tile + lds): row r
  // at s + r * lds, key j in column j - tile. `tile` and lo are multiples of
  // the panel. Columns outside what a row sees hold -inf within the row's own
  // Vectors and are undefined elsewhere. row_max [kRows] receives the largest
  // score of each row that sees anything; nullptr: not wanted.
  void Scores(const Block& block, int64_t tile, int64_t lo, int64_t hi,
              float* s, int64_t lds, float* row_max);

  // The part of [lo, hi) that row r sees, grown to whole vectors.
  static Interval Vectors(const Block& block, int64_t r, int64_t lo,
                          int64_t hi) {
    const int64_t begin = std::max(block.sees[r].begin, lo);
    const int64_t end = std::min(block.sees[r].end, hi);
    if (begin >= end) return {lo, lo};
    return {AlignDown(begin, kLanesI), AlignUp(end, kLanesI)};
  }

  // Calls vec(j, rel) for whole vectors of keys whose positions are
  // consecutive, one(j, rel) for single keys elsewhere. `keys` are whole
  // vectors; lanes that the row does not see are already -inf.
  template <typename Vec, typename One>
  void ForKeys(const Block& block, int64_t r, Interval keys, const Vec& vec,
               const One& one) const {
    const Tokens& t = call_.Keys(block.b);
    const int64_t begin = std::max(keys.begin, block.sees[r].begin);
    const int64_t end = std::min(keys.end, block.sees[r].end);
    const int64_t m = block.position[r];
    const bool one_run =
        t.runs.size() == 1 || t.RunOf(begin) == t.RunOf(end - 1);
    if (one_run) {
      int64_t rel =
          t.position[static_cast<size_t>(begin)] - m - (begin - keys.begin);
      for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
        vec(j, rel);
        rel += kLanesI;
      }
    } else {
      for (int64_t j = begin; j < end; ++j) {
        one(j, t.position[static_cast<size_t>(j)] - m);
      }
    }
  }

 private:
  void AddBand(const Block& block, int64_t tile, int64_t lo, int64_t hi,
               float* s, int64_t lds);
  void AddTables(const Block& block, int64_t r, int64_t tile, Interval keys,
                 float* s) const;
  // Returns whether it also found the row's maximum.
  bool AddBias(const Block& block, int64_t r, int64_t tile, Interval keys,
               float* s, float& max) const;
  void AddProfile(const Block& block, int64_t r, int64_t tile, Interval keys,
                  float* s) const;
  void Cap(float* s, int64_t begin, int64_t end) const;

  const Packed& packed_;
  const Call& call_;
  const BiasRamp* ramp_ = nullptr;
  const BiasProfile* profile_ = nullptr;
  const BiasTable* table_ = nullptr;
  const KeyTable* key_table_ = nullptr;
  bool use_key_table_ = false;
  int64_t q_stride_ = 0;
  FloatBuffer band_;
};

inline void Scorer::Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
                            float* memory, Block& block) const {
  const int64_t dim = call_.sizes.head_dim;
  block.b = b;
  block.h = h;
  block.first = first;
  block.count = count;
  block.dot = memory;
  block.plain = block.dot + packed_.depth * kRowsI;
  block.q_row = block.plain + dim * kRowsI;
  block.any = {std::numeric_limits<int64_t>::max(), 0};
  block.linear = true;
  std::vector<float> dot(static_cast<size_t>(packed_.depth));
  std::vector<float> plain(static_cast<size_t>(dim));
  for (int64_t r = 0; r < kRowsI; ++r) {
    if (r < count) {
      packed_.LoadQuery(b, h, first + r, dot.data(), plain.data());
      block.sees[r] = call_.Sees(b, first + r);
      block.position[r] =
          call_.Queries(b).position[static_cast<size_t>(first + r)];
      if (block.sees[r].begin < block.sees[r].end) {
        block.any.begin = std::min(block.any.begin, block.sees[r].begin);
        block.any.end = std::max(block.any.end, block.sees[r].end);
      }
      block.linear &= block.position[r] == block.position[0] + r;
    } else {
      std::fill(dot.begin(), dot.end(), 0.0F);
      std::fill(plain.begin(), plain.end(), 0.0F);
      block.sees[r] = {0, 0};
      block.position[r] = block.position[0] + r;
    }
    for (int64_t d = 0; d < packed_.depth; ++d) {
      block.dot[d * kRowsI + r] = dot[static_cast<size_t>(d)];
    }
    for (int64_t d = 0; d < dim; ++d) {
      block.plain[d * kRowsI + r] = plain[static_cast<size_t>(d)];
    }
  }
  if (q_stride_ > 0) {
    // q.Tq[rel] for every rel of the table, once a query.
    const PackedTable& table = *packed_.q_table;
    for (int64_t p = 0; p < table.cols; p += kColsI) {
      Gemm<Into::kStore>(block.plain, kRows, 1, table.Head(h) + p * dim, kCols,
                         static_cast<size_t>(dim), nullptr,
                         block.q_row + kRelPad + p,
                         static_cast<size_t>(q_stride_));
    }
    for (int64_t r = 0; r < kRowsI; ++r) {
      PadRel(block.q_row + r * q_stride_, table.map.width());
    }
  }
}

inline void Scorer::Scores(const Block& block, int64_t tile, int64_t lo,
                           int64_t hi, float* s, int64_t lds, float* row_max) {
  const float* panels = packed_.Keys(block.b, block.h);
  for (int64_t p = lo; p < hi; p += kColsI) {
    Gemm<Into::kStore>(block.dot, kRows, 1, panels + p * packed_.depth, kCols,
                       static_cast<size_t>(packed_.depth), nullptr,
                       s + (p - tile), static_cast<size_t>(lds));
  }
  if (packed_.q_table_band) AddBand(block, tile, lo, hi, s, lds);
  for (int64_t r = 0; r < block.count; ++r) {
    const Interval keys = Vectors(block, r, lo, hi);
    if (keys.begin == keys.end) continue;
    float* row = s + r * lds;
    // Lanes of the first and last vector that the row does not see.
    for (int64_t j = keys.begin; j < block.sees[r].begin; ++j) {
      row[j - tile] = kMinusInf;
    }
    for (int64_t j = std::min(block.sees[r].end, keys.end); j < keys.end; ++j) {
      row[j - tile] = kMinusInf;
    }
    if (q_stride_ > 0 || use_key_table_) AddTables(block, r, tile, keys, row);
    float max = kMinusInf;
    bool have_max = false;
    if (profile_ != nullptr) {
      AddProfile(block, r, tile, keys, row);
    } else if (ramp_ != nullptr || table_ != nullptr) {
      have_max = AddBias(block, r, tile, keys, row, max);
    }
    if (call_.softcap > 0.0F) {
      Cap(row, keys.begin - tile, keys.end - tile);
      have_max = false;
    }
    if (row_max == nullptr) continue;
    if (!have_max) {
      VF vmax = hn::Set(kDF, kMinusInf);
      for (int64_t j = keys.begin - tile; j < keys.end - tile; j += kLanesI) {
        vmax = hn::Max(vmax, hn::LoadU(kDF, row + j));
      }
      max = hn::GetLane(hn::MaxOfLanes(kDF, vmax));
    }
    row_max[r] = max;
  }
}

inline void Scorer::AddTables(const Block& block, int64_t r, int64_t tile,
                              Interval keys, float* s) const {
  s -= tile;  // index by key
  if (q_stride_ > 0) {
    const RelMap& map = packed_.q_table->map;
    const float* row = block.q_row + r * q_stride_;
    ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t rel) {
          const VF add =
              hn::LoadU(kDF, row + RelStart(rel, map.first, map.width()));
          hn::StoreU(hn::Add(hn::LoadU(kDF, s + j), add), kDF, s + j);
        },
        [&](int64_t j, int64_t rel) {
          s[j] += row[RelStart(rel, map.first, map.width())];
        });
  }
  if (use_key_table_) {
    const RelMap& map = packed_.k_map;
    const int64_t last = map.width() - 1;
    const float scale = packed_.ScaleOf(block.position[r]);
    const VF vscale = hn::Set(kDF, scale);
    const auto bucket = [&](int64_t rel) {
      const int64_t e = std::clamp<int64_t>(rel - map.first, 0, last);
      return map.bucket[static_cast<size_t>(e)];
    };
    HWY_ALIGN float gathered[kLanes];
    ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t rel) {
          // Buckets of far keys are shared: mostly one row serves a vector.
          const int32_t b0 = bucket(rel);
          VF add;
          if (b0 == bucket(rel + kLanesI - 1) &&
              b0 == bucket(rel + kLanesI / 2)) {
            add = hn::LoadU(kDF, key_table_->Row(b0) + j);
          } else {
            for (int64_t l = 0; l < kLanesI; ++l) {
              gathered[l] = key_table_->Row(bucket(rel + l))[j + l];
            }
            add = hn::Load(kDF, gathered);
          }
          hn::StoreU(hn::MulAdd(vscale, add, hn::LoadU(kDF, s + j)), kDF,
                     s + j);
        },
        [&](int64_t j, int64_t rel) {
          s[j] += scale * key_table_->Row(bucket(rel))[j];
        });
  }
}

inline void Scorer::AddBand(const Block& block, int64_t tile, int64_t lo,
                            int64_t hi, float* s, int64_t lds) {
  const PackedTable& table = *packed_.q_table;
  const Tokens& t = call_.Keys(block.b);
  const int64_t dim = call_.sizes.head_dim;
  const int64_t begin = std::max(lo, block.any.begin);
  const int64_t end = std::min(hi, block.any.end);
  // One GEMM of the block against the rels from the last row's first key to the
  // first row's last key, if both sides are consecutive; else row by row, run
  // by run.
  const auto multiply = [&](int64_t first_rel, int64_t last_rel) {
    const int64_t from =
        AlignDown(std::clamp<int64_t>(first_rel - table.map.first, 0,
                                      table.map.width() - 1),
                  kColsI);
    const int64_t to = std::clamp<int64_t>(last_rel - table.map.first, 0,
                                           table.map.width() - 1) +
                       1;
    const int64_t width = AlignUp(to - from, kColsI);
    band_.Resize((width + 2 * kRelPad) * kRowsI);
    const int64_t stride = width + 2 * kRelPad;
    for (int64_t p = 0; p < width; p += kColsI) {
      Gemm<Into::kStore>(
          block.plain, kRows, 1, table.Head(block.h) + (from + p) * dim, kCols,
          static_cast<size_t>(dim), nullptr, band_.data() + kRelPad + p,
          static_cast<size_t>(stride));
    }
    for (int64_t r = 0; r < kRowsI; ++r) {
      PadRel(band_.data() + r * stride, to - from);
    }
    return std::pair(from + table.map.first, to - from);
  };
  const auto add_row = [&](int64_t r, int64_t first, int64_t width,
                           Interval keys) {
    // Sound also for a row of several runs, as long as the band covers them.
    const int64_t stride = AlignUp(width, kColsI) + 2 * kRelPad;
    const float* row = band_.data() + r * stride;
    float* to = s + r * lds - tile;
    ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t rel) {
          const VF add = hn::LoadU(kDF, row + RelStart(rel, first, width));
          hn::StoreU(hn::Add(hn::LoadU(kDF, to + j), add), kDF, to + j);
        },
        [&](int64_t j, int64_t rel) {
          to[j] += row[RelStart(rel, first, width)];
        });
  };
  const bool one_run = t.runs.size() == 1 || t.RunOf(begin) == t.RunOf(end - 1);
  const int64_t n0 = t.position[static_cast<size_t>(begin)];
  if (one_run && block.linear) {
    const int64_t n1 = t.position[static_cast<size_t>(end - 1)];
    const auto [first, width] =
        multiply(n0 - block.position[block.count - 1], n1 - block.position[0]);
    for (int64_t r = 0; r < block.count; ++r) {
      const Interval keys = Vectors(block, r, lo, hi);
      if (keys.begin < keys.end) add_row(r, first, width, keys);
    }
    return;
  }
  // Scattered positions: a band for each stretch of one row's keys.
  for (int64_t r = 0; r < block.count; ++r) {
    const int64_t row_end = std::min(end, block.sees[r].end);
    for (int64_t j = std::max(begin, block.sees[r].begin); j < row_end;) {
      const Run& run = t.runs[t.RunOf(j)];
      const int64_t stop = std::min(row_end, run.first + run.count);
      const int64_t rel =
          t.position[static_cast<size_t>(j)] - block.position[r];
      const auto [first, width] = multiply(rel, rel + stop - 1 - j);
      const int64_t stride = AlignUp(width, kColsI) + 2 * kRelPad;
      const float* row = band_.data() + r * stride;
      for (int64_t at = j; at < stop; ++at) {
        s[r * lds + at - tile] += row[RelStart(rel + at - j, first, width)];
      }
      j = stop;
    }
  }
}

inline bool Scorer::AddBias(const Block& block, int64_t r, int64_t tile,
                            Interval keys, float* s, float& max) const {
  s -= tile;
  const int64_t h = block.h;
  const int64_t m = block.position[r];
  const Tokens& t = call_.Keys(block.b);
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  if (table_ != nullptr && (table_->buckets.grid || table_->buckets.special)) {
    // Two-dimensional or with a token apart: key by key.
    for (int64_t j = begin; j < end; ++j) {
      const int64_t n = t.position[static_cast<size_t>(j)];
      s[j] += PackedBias::Value(*table_, h, table_->buckets(m, n));
    }
    return false;
  }
  const bool one_run = t.runs.size() == 1 || t.RunOf(begin) == t.RunOf(end - 1);
  const int64_t rel =
      t.position[static_cast<size_t>(begin)] - m - (begin - keys.begin);
  VF vmax = hn::Set(kDF, kMinusInf);
  if (ramp_ != nullptr) {
    const size_t head = static_cast<size_t>(h);
    const float past = static_cast<float>(ramp_->past[head] * kLog2E);
    const float future = static_cast<float>(-ramp_->future[head] * kLog2E);
    if (!one_run) {
      for (int64_t j = begin; j < end; ++j) {
        const float x =
            static_cast<float>(t.position[static_cast<size_t>(j)] - m);
        s[j] += x * (x < 0.0F ? past : future);
      }
      return false;
    }
    // rel counts up by whole numbers, exactly, in float.
    VF x = hn::Add(hn::Iota(kDF, 0.0F), hn::Set(kDF, static_cast<float>(rel)));
    const VF step = hn::Set(kDF, static_cast<float>(kLanesI));
    const VF vpast = hn::Set(kDF, past), vfuture = hn::Set(kDF, future);
    for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
      const VF slope = hn::IfThenElse(hn::Lt(x, hn::Zero(kDF)), vpast, vfuture);
      const VF y = hn::MulAdd(x, slope, hn::LoadU(kDF, s + j));
      vmax = hn::Max(vmax, y);
      hn::StoreU(y, kDF, s + j);
      x = hn::Add(x, step);
    }
  } else {
    const PackedBias& bias = *packed_.bias;
    const float* row = bias.Row(h);
    const int64_t first = bias.map.first, width = bias.map.width();
    if (!one_run) {
      for (int64_t j = begin; j < end; ++j) {
        s[j] +=
            row[RelStart(t.position[static_cast<size_t>(j)] - m, first, width)];
      }
      return false;
    }
    int64_t at = rel;
    for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
      const VF add = hn::LoadU(kDF, row + RelStart(at, first, width));
      const VF y = hn::Add(hn::LoadU(kDF, s + j), add);
      vmax = hn::Max(vmax, y);
      hn::StoreU(y, kDF, s + j);
      at += kLanesI;
    }
  }
  max = hn::GetLane(hn::MaxOfLanes(kDF, vmax));
  return true;
}

inline void Scorer::AddProfile(const Block& block, int64_t r, int64_t tile,
                               Interval keys, float* s) const {
  s -= tile;
  const BiasProfile& p = *profile_;
  const int64_t h = p.base.size(0) == 1 ? 0 : block.h;
  const Tokens& t = call_.Keys(block.b);
  const int64_t m = block.position[r];
  const double gain = p.row_gain[static_cast<size_t>(m - p.first_position)];
  const double* base = p.base.Data<double>() + h * p.base.size(1);
  const double* slope = p.slope.Data<double>() + h * p.slope.size(1);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  // x moves slowly along the keys: walk from segment to segment.
  size_t segment = 0;
  for (int64_t j = std::max(keys.begin, block.sees[r].begin); j < end; ++j) {
    const int64_t distance = std::abs(t.position[static_cast<size_t>(j)] - m);
    const double x = p.distance[static_cast<size_t>(distance)] * gain;
    while (segment > 0 && x < p.knots[segment - 1]) --segment;
    while (segment < p.knots.size() && x >= p.knots[segment]) ++segment;
    s[j] += static_cast<float>(kLog2E * (base[segment] + slope[segment] * x));
  }
}

inline void Scorer::Cap(float* s, int64_t begin, int64_t end) const {
  // cap tanh(s / cap), with s and cap both in units of log2.
  const float cap = static_cast<float>(call_.softcap * kLog2E);
  for (int64_t j = begin; j < end; ++j) {
    if (s[j] != kMinusInf) s[j] = cap * std::tanh(s[j] / cap);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SCORE_INL_H_

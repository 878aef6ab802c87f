// Fused backward attention. Scores are recomputed by tile from lse; nothing of
// size N x N exists. With p and ds of a tile of queries x keys at hand:
//
//   dv += p^T do        dp = do v^T        ds = p (dp - do.o)
//   dq += ds k          dk += ds^T q
//
// and the tables' gradients are sums of ds (or p) along diagonals, kept by rel.
// A task is all of one head's keys for a stretch of queries; what several tasks
// add to (keys of grouped heads, tables) is kept apart and summed in order, so
// that the bits do not depend on the number of threads. Included once a SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_ATTENTION_BWD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_ATTENTION_BWD_INL_H_
#undef LOCUS_SRC_KERNELS_ATTENTION_BWD_INL_H_
#else
#define LOCUS_SRC_KERNELS_ATTENTION_BWD_INL_H_
#endif

#include <span>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::BackwardCall;
using kernels::Rows;

// 96 queries x 192 keys: p and ds take 74 KiB each and stay in L2, and each of
// the five products has a depth of at least 96, so that loading and storing the
// accumulators costs two in a hundred. 96 and 192 are multiples of both sides
// of the micro-kernel (12 x 32, 6 x 16, 6 x 8).
constexpr int64_t kBwdQueries = 96;
constexpr int64_t kBwdKeys = 192;

// What one task adds to things that other tasks add to as well.
struct TaskGrads {
  FloatBuffer keys;               // [cols + kRows][depth padded], times log2(e)
  FloatBuffer values;             // [cols + kRows][value_dim padded]
  std::vector<float> q_table;     // [width][D padded], by rel
  std::vector<float> v_table;     // [width][Dv padded], by rel
  std::vector<double> bias;       // [width], by rel
  std::vector<float> k_table;     // [buckets][D padded]
  std::vector<float> plain_keys;  // [keys][D]: dk through the key table
  std::vector<double> key_row;    // [D]: the one row of a folded key table
  std::vector<float> extra_q;     // [positions][E]
  std::vector<float> extra_k;
  std::optional<BiasProfileGrads> profile;
  std::vector<double> special;  // [buckets]: bias of grids and special tokens
};

// Operands that only the backward pass needs.
struct BackwardPacked {
  BackwardPacked(const Packed& p, const BackwardCall& args);

  const Packed& packed;
  int64_t depth_stride = 0;  // depth, padded
  int64_t dim_stride = 0;    // D, padded
  int64_t value_pad = 0;     // Dv, padded
  FloatBuffer key_rows;      // [B][pack heads][cols][depth_stride], rotated
  FloatBuffer value_panels;  // [B][kv heads][cols / kCols][Dv][kCols]
  std::unique_ptr<PackedRows> q_rows;     // Tq by rel, row-major
  std::unique_ptr<PackedTable> v_panels;  // Tv by rel, in panels
  std::vector<float> delta;  // do.o a query: [B][Hq][Lq] in tensor order

  const float* KeyRows(int64_t b, int64_t h) const {
    const int64_t head = packed.per_query_head ? h : packed.call.KvHead(h);
    return key_rows.data() +
           (b * packed.pack_heads + head) * packed.cols * depth_stride;
  }
  const float* ValuePanels(int64_t b, int64_t h) const {
    const CallSizes& s = packed.call.sizes;
    return value_panels.data() +
           (b * s.kv_heads + packed.call.KvHead(h)) * packed.cols * s.value_dim;
  }
};

inline BackwardPacked::BackwardPacked(const Packed& p, const BackwardCall& args)
    : packed(p) {
  const Call& call = packed.call;
  const CallSizes& s = call.sizes;
  depth_stride = PaddedCols(packed.depth);
  dim_stride = PaddedCols(s.head_dim);
  value_pad = PaddedCols(s.value_dim);
  key_rows.Resize(s.batch * packed.pack_heads * packed.cols * depth_stride);
  ParallelFor(s.batch * packed.pack_heads, packed.threads, [&](int64_t task) {
    const int64_t b = task / packed.pack_heads;
    const int64_t head = task % packed.pack_heads;
    const int64_t h =
        packed.per_query_head ? head : head * (s.q_heads / s.kv_heads);
    float* to = key_rows.data() + task * packed.cols * depth_stride;
    std::fill_n(to, packed.cols * depth_stride, 0.0F);
    for (int64_t j = 0; j < call.Keys(b).size(); ++j) {
      packed.LoadKey(b, h, j, to + j * depth_stride);
    }
  });
  value_panels.Resize(s.batch * s.kv_heads * packed.cols * s.value_dim);
  ParallelFor(s.batch * s.kv_heads, packed.threads, [&](int64_t task) {
    const int64_t b = task / s.kv_heads, kv = task % s.kv_heads;
    float* to = value_panels.data() + task * packed.cols * s.value_dim;
    std::vector<float> row(static_cast<size_t>(s.value_dim));
    for (int64_t j = 0; j < packed.cols; ++j) {
      std::fill(row.begin(), row.end(), 0.0F);
      if (j < call.Keys(b).size()) {
        call.v.Load(b, kv, call.Keys(b).source[static_cast<size_t>(j)],
                    row.data());
      }
      WriteColumn(row.data(), s.value_dim, j, to);
    }
  });
  if (call.terms.q_table) {
    q_rows = std::make_unique<PackedRows>(*call.terms.q_table, call.shape);
  }
  if (call.terms.v_table) {
    v_panels = std::make_unique<PackedTable>(*call.terms.v_table, call.shape,
                                             packed.threads);
  }
  delta.resize(static_cast<size_t>(s.batch * s.q_heads * s.q_len));
  ParallelFor(s.batch * s.q_heads, packed.threads, [&](int64_t task) {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    std::vector<float> o(static_cast<size_t>(s.value_dim)), g(o);
    for (int64_t i = 0; i < s.q_len; ++i) {
      args.out.Load(b, h, i, o.data());
      args.d_out.Load(b, h, i, g.data());
      double sum = 0.0;
      for (size_t d = 0; d < o.size(); ++d) {
        sum += static_cast<double>(o[d]) * static_cast<double>(g[d]);
      }
      delta[static_cast<size_t>(task * s.q_len + i)] = static_cast<float>(sum);
    }
  });
}

// C[r, 0 .. width) += A[k, r] B[k, ..] over whole column panels, for kRows
// rows.
inline void AddProduct(const float* a, int64_t ak, int64_t ar, const float* b,
                       int64_t bk, int64_t depth, float* c, int64_t ldc,
                       int64_t width) {
  float one[kRows];
  std::fill_n(one, kRows, 1.0F);
  for (int64_t col = 0; col < width; col += kColsI) {
    Gemm<Into::kScaleAdd>(a, static_cast<size_t>(ak), static_cast<size_t>(ar),
                          b + col, static_cast<size_t>(bk),
                          static_cast<size_t>(depth), one, c + col,
                          static_cast<size_t>(ldc));
  }
}

struct BackwardScratch {
  FloatBuffer blocks, p, ds, q_rows, plain_rows, d_rows, d_pack, d_q, d_plain,
      by_rel, v_row, p_by_rel, band;
};

class BackwardTask {
 public:
  BackwardTask(const BackwardPacked& bp, const BackwardCall& args,
               BackwardScratch& scratch, TaskGrads& grads);

  // Queries [first, first + count) of (b, h), all keys.
  void Run(int64_t b, int64_t h, int64_t first, int64_t count);

 private:
  void LoadTile(int64_t first, int64_t count);
  void ScoreTile(int64_t tile, int64_t keys);
  void ScoreBlock(int64_t n, int64_t tile, int64_t keys);
  void AddTileGrads(int64_t tile, int64_t keys);
  void AddRowTerms(int64_t n, int64_t r, int64_t tile, Interval keys);
  void AddBand(int64_t tile);
  void FinishTile();
  void FinishKeyTable();
  // Adds x[keys) to `to` by rel, padded as PadRel.
  void AddDiagonal(const Block& block, int64_t r, Interval keys, const float* x,
                   const RelMap& map, float* to) const;

  const BackwardPacked& bp_;
  const Packed& packed_;
  const Call& call_;
  const BackwardCall& args_;
  BackwardScratch& s_;
  TaskGrads& g_;
  Scorer scorer_;
  KeyTable key_table_;
  FloatBuffer d_key_table_;
  int64_t b_ = 0, h_ = 0, first_ = 0, count_ = 0, n_blocks_ = 0;
  static constexpr int64_t lds_ = kBwdKeys + 16;
  bool want_ = false;         // gradients of terms are asked for
  bool short_table_ = false;  // q_table by whole rows
  int64_t rel_stride_ = 0;    // of a query's ds by rel
  int64_t v_rel_stride_ = 0;  // of a query's p by rel, and of do.Tv
  bool plain_bias_ = false;
  std::vector<Block> blocks_;
  std::vector<float> lse_;  // of the tile's rows, times log2(e)
  std::vector<float> delta_;
};

inline BackwardTask::BackwardTask(const BackwardPacked& bp,
                                  const BackwardCall& args,
                                  BackwardScratch& scratch, TaskGrads& grads)
    : bp_(bp),
      packed_(bp.packed),
      call_(bp.packed.call),
      args_(args),
      s_(scratch),
      g_(grads),
      scorer_(bp.packed),
      want_(args.want_terms) {
  const CallSizes& s = call_.sizes;
  const Terms& terms = call_.terms;
  // Keys are added to kRows at a time, which may reach past the last panel.
  const int64_t rows = packed_.cols + kRowsI;
  g_.keys.Resize(rows * bp_.depth_stride);
  g_.values.Resize(rows * bp_.value_pad);
  std::fill_n(g_.keys.data(), rows * bp_.depth_stride, 0.0F);
  std::fill_n(g_.values.data(), rows * bp_.value_pad, 0.0F);
  if (packed_.q_table) {
    short_table_ = !packed_.q_table_band;
    const int64_t width = packed_.q_table->map.width();
    if (short_table_) rel_stride_ = AlignUp(width, kLanesI) + 2 * kRelPad;
    g_.q_table.assign(
        static_cast<size_t>(AlignUp(width, kRowsI) * bp_.dim_stride), 0.0F);
  }
  if (packed_.v_table) {
    const int64_t width = packed_.v_table->map.width();
    v_rel_stride_ = AlignUp(bp_.v_panels->cols, kLanesI) + 2 * kRelPad;
    g_.v_table.assign(
        static_cast<size_t>(AlignUp(width, kRowsI) * bp_.value_pad), 0.0F);
  }
  if (!want_) return;
  if (packed_.bias) {
    const BucketMap& map = std::get<BiasTable>(*terms.bias).buckets;
    plain_bias_ = !map.grid && !map.special;
    if (plain_bias_) {
      g_.bias.assign(
          static_cast<size_t>(packed_.bias->map.width() + 2 * kRelPad), 0.0);
    } else {
      g_.special.assign(static_cast<size_t>(map.count), 0.0);
    }
  }
  if (terms.bias) {
    if (const auto* profile = std::get_if<BiasProfile>(&*terms.bias)) {
      g_.profile =
          BiasProfileGrads{std::vector<double>(profile->distance.size()),
                           std::vector<double>(profile->row_gain.size()),
                           Tensor::Zeros(DType::kF64, profile->base.shape()),
                           Tensor::Zeros(DType::kF64, profile->slope.shape())};
    }
  }
  if (terms.k_table) {
    if (packed_.fold_key_row) {
      g_.key_row.assign(static_cast<size_t>(s.head_dim), 0.0);
    } else {
      g_.k_table.assign(
          static_cast<size_t>(AlignUp(terms.k_table->buckets.count, kRowsI) *
                              bp_.dim_stride),
          0.0F);
    }
  }
  if (terms.extra_dot) {
    const ExtraDot& dot = *terms.extra_dot;
    g_.extra_q.assign(static_cast<size_t>(dot.q_rows.size(1) * packed_.extra),
                      0.0F);
    g_.extra_k.assign(static_cast<size_t>(dot.k_rows.size(1) * packed_.extra),
                      0.0F);
  }
}

inline void BackwardTask::Run(int64_t b, int64_t h, int64_t first,
                              int64_t count) {
  b_ = b;
  h_ = h;
  if (scorer_.needs_key_table()) {
    key_table_.Build(packed_, b, h);
    scorer_.SetKeyTable(&key_table_);
    // Blocks of kRows keys may reach past the last panel of the last bucket.
    const int64_t size =
        AlignUp(call_.terms.k_table->buckets.count, kRowsI) * packed_.cols +
        kRowsI;
    d_key_table_.Resize(size);
    std::fill_n(d_key_table_.data(), size, 0.0F);
  }
  for (int64_t q = 0; q < count; q += kBwdQueries) {
    LoadTile(first + q, std::min(kBwdQueries, count - q));
    Interval any{std::numeric_limits<int64_t>::max(), 0};
    for (const Block& block : blocks_) {
      any.begin = std::min(any.begin, block.any.begin);
      any.end = std::max(any.end, block.any.end);
    }
    for (int64_t tile = any.begin < any.end ? AlignDown(any.begin, kBwdKeys)
                                            : any.end;
         tile < any.end; tile += kBwdKeys) {
      const int64_t keys = std::min(kBwdKeys, any.end - tile);
      ScoreTile(tile, keys);
      AddTileGrads(tile, keys);
    }
    FinishTile();
  }
  if (scorer_.needs_key_table()) FinishKeyTable();
}

inline void BackwardTask::LoadTile(int64_t first, int64_t count) {
  const CallSizes& s = call_.sizes;
  first_ = first;
  count_ = count;
  n_blocks_ = (count + kRowsI - 1) / kRowsI;
  const int64_t rows = n_blocks_ * kRowsI;
  s_.blocks.Resize(n_blocks_ * scorer_.BlockFloats());
  s_.p.Resize(kBwdQueries * lds_);
  s_.ds.Resize(kBwdQueries * lds_);
  s_.q_rows.Resize(kBwdQueries * bp_.depth_stride);
  s_.plain_rows.Resize(kBwdQueries * bp_.dim_stride);
  s_.d_rows.Resize(kBwdQueries * bp_.value_pad);
  s_.d_pack.Resize(kBwdQueries * s.value_dim);
  s_.d_q.Resize(kBwdQueries * bp_.depth_stride);
  std::fill_n(s_.q_rows.data(), kBwdQueries * bp_.depth_stride, 0.0F);
  std::fill_n(s_.plain_rows.data(), kBwdQueries * bp_.dim_stride, 0.0F);
  std::fill_n(s_.d_rows.data(), kBwdQueries * bp_.value_pad, 0.0F);
  std::fill_n(s_.d_q.data(), kBwdQueries * bp_.depth_stride, 0.0F);
  s_.d_plain.Resize(kBwdQueries * bp_.dim_stride);
  std::fill_n(s_.d_plain.data(), kBwdQueries * bp_.dim_stride, 0.0F);
  blocks_.assign(static_cast<size_t>(n_blocks_), Block());
  lse_.assign(static_cast<size_t>(rows), 0.0F);
  delta_.assign(static_cast<size_t>(rows), 0.0F);
  const Tokens& tokens = call_.Queries(b_);
  for (int64_t n = 0; n < n_blocks_; ++n) {
    Block& block = blocks_[static_cast<size_t>(n)];
    scorer_.Prepare(b_, h_, first + n * kRowsI,
                    std::min(kRowsI, count - n * kRowsI),
                    s_.blocks.data() + n * scorer_.BlockFloats(), block);
    for (int64_t r = 0; r < kRowsI; ++r) {
      const int64_t i = n * kRowsI + r;
      float* d_row = s_.d_rows.data() + i * bp_.value_pad;
      if (r < block.count) {
        const int64_t source = tokens.source[static_cast<size_t>(first + i)];
        args_.d_out.Load(b_, h_, source, d_row);
        const int64_t at = (b_ * s.q_heads + h_) * s.q_len + source;
        lse_[static_cast<size_t>(i)] =
            static_cast<float>(static_cast<double>(args_.lse[at]) * kLog2E);
        delta_[static_cast<size_t>(i)] = bp_.delta[static_cast<size_t>(at)];
        // A row that saw nothing has no gradient.
        if (args_.lse[at] == kMinusInf) block.sees[r] = {0, 0};
      }
      for (int64_t d = 0; d < packed_.depth; ++d) {
        s_.q_rows.data()[i * bp_.depth_stride + d] = block.dot[d * kRowsI + r];
      }
      for (int64_t d = 0; d < s.head_dim; ++d) {
        s_.plain_rows.data()[i * bp_.dim_stride + d] =
            block.plain[d * kRowsI + r];
      }
      float* pack = s_.d_pack.data() + n * kRowsI * s.value_dim;
      for (int64_t d = 0; d < s.value_dim; ++d) {
        pack[d * kRowsI + r] = d_row[d];
      }
    }
  }
  if (short_table_) {
    s_.by_rel.Resize(kBwdQueries * rel_stride_);
    std::fill_n(s_.by_rel.data(), kBwdQueries * rel_stride_, 0.0F);
  }
  if (v_rel_stride_ > 0) {
    // do.Tv by rel, once a query; and p by rel.
    s_.v_row.Resize(kBwdQueries * v_rel_stride_);
    s_.p_by_rel.Resize(kBwdQueries * v_rel_stride_);
    std::fill_n(s_.p_by_rel.data(), kBwdQueries * v_rel_stride_, 0.0F);
    const PackedTable& table = *bp_.v_panels;
    for (int64_t n = 0; n < n_blocks_; ++n) {
      float* rows_to = s_.v_row.data() + n * kRowsI * v_rel_stride_;
      for (int64_t p = 0; p < table.cols; p += kColsI) {
        Gemm<Into::kStore>(s_.d_pack.data() + n * kRowsI * s.value_dim, kRows,
                           1, table.Head(h_) + p * s.value_dim, kCols,
                           static_cast<size_t>(s.value_dim), nullptr,
                           rows_to + kRelPad + p,
                           static_cast<size_t>(v_rel_stride_));
      }
      for (int64_t r = 0; r < kRowsI; ++r) {
        PadRel(rows_to + r * v_rel_stride_, table.map.width());
      }
    }
  }
}

inline void BackwardTask::ScoreTile(int64_t tile, int64_t keys) {
  for (int64_t n = 0; n < n_blocks_; ++n) ScoreBlock(n, tile, keys);
}

// p and ds of block n against keys [tile, tile + keys): zeros where a row does
// not see a key.
inline void BackwardTask::ScoreBlock(int64_t n, int64_t tile, int64_t keys) {
  const Block& block = blocks_[static_cast<size_t>(n)];
  float* p = s_.p.data() + n * kRowsI * lds_;
  float* ds = s_.ds.data() + n * kRowsI * lds_;
  const int64_t begin = std::max(block.any.begin, tile);
  const int64_t end = std::min(block.any.end, tile + keys);
  if (begin >= end) {
    std::fill_n(p, kRowsI * lds_, 0.0F);
    std::fill_n(ds, kRowsI * lds_, 0.0F);
    return;
  }
  const int64_t lo = AlignDown(begin, kColsI);
  scorer_.Scores(block, tile, lo, end, p, lds_, /*row_max=*/nullptr);
  // dp = do v^T
  const int64_t dv = call_.sizes.value_dim;
  const float* v = bp_.ValuePanels(b_, h_);
  for (int64_t c = lo; c < end; c += kColsI) {
    Gemm<Into::kStore>(s_.d_pack.data() + n * kRowsI * dv, kRows, 1, v + c * dv,
                       kCols, static_cast<size_t>(dv), nullptr, ds + (c - tile),
                       static_cast<size_t>(lds_));
  }
  const float cap = static_cast<float>(call_.softcap * kLog2E);
  const Exp2Reference zero(0.0F);
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* pr = p + r * lds_ - tile;  // indexed by key
    float* dr = ds + r * lds_ - tile;
    Interval seen = Scorer::Vectors(block, r, lo, end);
    if (r >= block.count || seen.begin == seen.end) {
      std::fill_n(pr + tile, kBwdKeys, 0.0F);
      std::fill_n(dr + tile, kBwdKeys, 0.0F);
      continue;
    }
    const size_t i = static_cast<size_t>(n * kRowsI + r);
    if (v_rel_stride_ > 0) {
      // dp += do.Tv[b]
      const RelMap& map = packed_.v_table->map;
      const float* row =
          s_.v_row.data() + static_cast<int64_t>(i) * v_rel_stride_;
      scorer_.ForKeys(
          block, r, seen,
          [&](int64_t j, int64_t rel) {
            const VF add =
                hn::LoadU(kDF, row + RelStart(rel, map.first, map.width()));
            hn::StoreU(hn::Add(hn::LoadU(kDF, dr + j), add), kDF, dr + j);
          },
          [&](int64_t j, int64_t rel) {
            dr[j] += row[RelStart(rel, map.first, map.width())];
          });
    }
    const VF lse = hn::Set(kDF, lse_[i]);
    const VF delta = hn::Set(kDF, delta_[i]);
    for (int64_t j = seen.begin; j < seen.end; j += kLanesI) {
      const VF s = hn::LoadU(kDF, pr + j);
      const VF prob = Exp2(hn::Sub(s, lse), zero);
      VF d = hn::Mul(prob, hn::Sub(hn::LoadU(kDF, dr + j), delta));
      if (cap > 0.0F) {
        // c = cap tanh(s / cap)  =>  ds = dc (1 - (c / cap)^2)
        const VF t = hn::Mul(s, hn::Set(kDF, 1.0F / cap));
        d = hn::Mul(d, hn::NegMulAdd(t, t, hn::Set(kDF, 1.0F)));
      }
      // Lanes that the row does not see have s = -inf: weight and slope zero.
      const auto masked = hn::Eq(s, hn::Set(kDF, kMinusInf));
      hn::StoreU(hn::IfThenZeroElse(masked, prob), kDF, pr + j);
      hn::StoreU(hn::IfThenZeroElse(masked, d), kDF, dr + j);
    }
    for (int64_t j = tile; j < seen.begin; ++j) pr[j] = dr[j] = 0.0F;
    for (int64_t j = seen.end; j < tile + kBwdKeys; ++j) pr[j] = dr[j] = 0.0F;
    AddRowTerms(n, r, tile, seen);
  }
}

inline void BackwardTask::AddDiagonal(const Block& block, int64_t r,
                                      Interval keys, const float* x,
                                      const RelMap& map, float* to) const {
  const int64_t width = map.width();
  VF low = hn::Zero(kDF), high = hn::Zero(kDF);
  scorer_.ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t rel) {
        const int64_t at = RelStart(rel, map.first, width);
        const VF w = hn::LoadU(kDF, x + j);
        if (at == 0) {
          low = hn::Add(low, w);
        } else if (at == width + kRelPad) {
          high = hn::Add(high, w);
        } else {
          hn::StoreU(hn::Add(hn::LoadU(kDF, to + at), w), kDF, to + at);
        }
      },
      [&](int64_t j, int64_t rel) {
        to[RelStart(rel, map.first, width)] += x[j];
      });
  to[0] += hn::GetLane(hn::SumOfLanes(kDF, low));
  to[width + kRelPad] += hn::GetLane(hn::SumOfLanes(kDF, high));
}

// Gradients that follow diagonals, of one row.
inline void BackwardTask::AddRowTerms(int64_t n, int64_t r, int64_t tile,
                                      Interval keys) {
  const Block& block = blocks_[static_cast<size_t>(n)];
  const int64_t i = n * kRowsI + r;
  const float* p = s_.p.data() + i * lds_ - tile;
  const float* ds = s_.ds.data() + i * lds_ - tile;
  if (short_table_) {
    AddDiagonal(block, r, keys, ds, packed_.q_table->map,
                s_.by_rel.data() + i * rel_stride_);
  }
  if (v_rel_stride_ > 0) {
    AddDiagonal(block, r, keys, p, packed_.v_table->map,
                s_.p_by_rel.data() + i * v_rel_stride_);
  }
  const Tokens& t = call_.Keys(b_);
  const int64_t m = block.position[r];
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  if (scorer_.needs_key_table()) {
    // s += scale_i k_j.Tk[b]
    const RelMap& map = packed_.k_map;
    const int64_t last = map.width() - 1;
    const float scale = static_cast<float>(call_.terms.scale.At(m));
    const VF vscale = hn::Set(kDF, scale);
    const auto bucket = [&](int64_t rel) {
      return map.bucket[static_cast<size_t>(
          std::clamp<int64_t>(rel - map.first, 0, last))];
    };
    float* base = d_key_table_.data();
    const int64_t cols = packed_.cols;
    scorer_.ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t rel) {
          const int32_t b0 = bucket(rel);
          if (b0 == bucket(rel + kLanesI - 1) &&
              b0 == bucket(rel + kLanesI / 2)) {
            float* to = base + b0 * cols + j;
            hn::StoreU(
                hn::MulAdd(vscale, hn::LoadU(kDF, ds + j), hn::LoadU(kDF, to)),
                kDF, to);
          } else {
            for (int64_t l = 0; l < kLanesI; ++l) {
              base[bucket(rel + l) * cols + j + l] += scale * ds[j + l];
            }
          }
        },
        [&](int64_t j, int64_t rel) {
          base[bucket(rel) * cols + j] += scale * ds[j];
        });
  }
  if (!want_) return;
  if (plain_bias_) {
    // s += B[h, b]: sum ds along the diagonal, in float64.
    const RelMap& map = packed_.bias->map;
    for (int64_t j = begin; j < end; ++j) {
      const int64_t rel = t.position[static_cast<size_t>(j)] - m;
      g_.bias[static_cast<size_t>(RelStart(rel, map.first, map.width()))] +=
          static_cast<double>(ds[j]);
    }
  } else if (!g_.special.empty()) {
    const BucketMap& map = std::get<BiasTable>(*call_.terms.bias).buckets;
    for (int64_t j = begin; j < end; ++j) {
      g_.special[static_cast<size_t>(
          map(m, t.position[static_cast<size_t>(j)]))] +=
          static_cast<double>(ds[j]);
    }
  }
  if (g_.profile) {
    // x = u g,  s += base[h, s] + slope[h, s] x
    const auto& profile = std::get<BiasProfile>(*call_.terms.bias);
    const int64_t row = profile.base.size(0) == 1 ? 0 : h_;
    const int64_t at = row * profile.base.size(1);
    const size_t q_row = static_cast<size_t>(m - profile.first_position);
    double* d_base = g_.profile->base.MutableData<double>() + at;
    double* d_slope = g_.profile->slope.MutableData<double>() + at;
    const double* slope = profile.slope.Data<double>() + at;
    for (int64_t j = begin; j < end; ++j) {
      const size_t u =
          static_cast<size_t>(std::abs(m - t.position[static_cast<size_t>(j)]));
      const double x = profile.distance[u] * profile.row_gain[q_row];
      const size_t segment = profile.Segment(x);
      const double d = static_cast<double>(ds[j]);
      d_base[segment] += d;
      d_slope[segment] += d * x;
      const double d_x = d * slope[segment];
      g_.profile->distance[u] += d_x * profile.row_gain[q_row];
      g_.profile->row_gain[q_row] += d_x * profile.distance[u];
    }
  }
}

// The products of a tile: dq += ds k, dk += ds^T q, dv += p^T do.
inline void BackwardTask::AddTileGrads(int64_t tile, int64_t keys) {
  const float* k = bp_.KeyRows(b_, h_);
  for (int64_t n = 0; n < n_blocks_; ++n) {
    const Block& block = blocks_[static_cast<size_t>(n)];
    const int64_t begin = std::max(block.any.begin, tile);
    const int64_t end = std::min(block.any.end, tile + keys);
    if (begin >= end) continue;
    AddProduct(s_.ds.data() + n * kRowsI * lds_ + (begin - tile), 1, lds_,
               k + begin * bp_.depth_stride, bp_.depth_stride, end - begin,
               s_.d_q.data() + n * kRowsI * bp_.depth_stride, bp_.depth_stride,
               bp_.depth_stride);
  }
  if (packed_.q_table_band) AddBand(tile);
  for (int64_t j = 0; j < keys; j += kRowsI) {
    // The queries of the tile that see any of these kRows keys.
    int64_t from = n_blocks_, to = 0;
    for (int64_t n = 0; n < n_blocks_; ++n) {
      const Interval& any = blocks_[static_cast<size_t>(n)].any;
      if (any.begin < tile + j + kRowsI && any.end > tile + j) {
        from = std::min(from, n);
        to = n + 1;
      }
    }
    if (from >= to) continue;
    const int64_t row = from * kRowsI, depth = (to - from) * kRowsI;
    AddProduct(s_.ds.data() + row * lds_ + j, lds_, 1,
               s_.q_rows.data() + row * bp_.depth_stride, bp_.depth_stride,
               depth, g_.keys.data() + (tile + j) * bp_.depth_stride,
               bp_.depth_stride, bp_.depth_stride);
    AddProduct(s_.p.data() + row * lds_ + j, lds_, 1,
               s_.d_rows.data() + row * bp_.value_pad, bp_.value_pad, depth,
               g_.values.data() + (tile + j) * bp_.value_pad, bp_.value_pad,
               bp_.value_pad);
  }
}

// A query table too wide for whole rows: ds laid out by rel for this tile, then
// dq += ds_rel Tq and dTq += ds_rel^T q.
inline void BackwardTask::AddBand(int64_t tile) {
  const PackedTable& table = *packed_.q_table;
  const Tokens& t = call_.Keys(b_);
  const int64_t width = table.map.width();
  int64_t first = width, last = -1;
  const auto rel_at = [&](int64_t j, int64_t m) {
    return std::clamp<int64_t>(
        t.position[static_cast<size_t>(j)] - m - table.map.first, 0, width - 1);
  };
  for (const Block& block : blocks_) {
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t begin = std::max(block.sees[r].begin, tile);
      const int64_t end = std::min(block.sees[r].end, tile + kBwdKeys);
      if (begin >= end) continue;
      first = std::min(first, rel_at(begin, block.position[r]));
      last = std::max(last, rel_at(end - 1, block.position[r]));
    }
  }
  if (last < first) return;
  // Rows of the band are accumulated kRows rels at a time.
  first = AlignDown(first, kRowsI);
  const int64_t span = AlignUp(last + 1 - first, kRowsI);
  const int64_t stride = AlignUp(span, kLanesI);
  s_.band.Resize(kBwdQueries * stride);
  std::fill_n(s_.band.data(), kBwdQueries * stride, 0.0F);
  for (int64_t n = 0; n < n_blocks_; ++n) {
    const Block& block = blocks_[static_cast<size_t>(n)];
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t i = n * kRowsI + r;
      const int64_t begin = std::max(block.sees[r].begin, tile);
      const int64_t end = std::min(block.sees[r].end, tile + kBwdKeys);
      float* to = s_.band.data() + i * stride - first;
      const float* ds = s_.ds.data() + i * lds_ - tile;
      for (int64_t j = begin; j < end; ++j) {
        to[rel_at(j, block.position[r])] += ds[j];
      }
    }
  }
  const PackedRows& rows = *bp_.q_rows;
  const int64_t depth = std::min(span, width - first);
  for (int64_t n = 0; n < n_blocks_; ++n) {
    AddProduct(s_.band.data() + n * kRowsI * stride, 1, stride,
               rows.Head(h_) + first * rows.stride, rows.stride, depth,
               s_.d_plain.data() + n * kRowsI * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
  for (int64_t e = 0; e < span; e += kRowsI) {
    AddProduct(s_.band.data() + e, stride, 1, s_.plain_rows.data(),
               bp_.dim_stride, n_blocks_ * kRowsI,
               g_.q_table.data() + (first + e) * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
}

inline void BackwardTask::FinishTile() {
  const CallSizes& s = call_.sizes;
  const int64_t rows = n_blocks_ * kRowsI;
  const auto fold = [](float* row, int64_t width) {
    for (int64_t e = 0; e < kRelPad; ++e) {
      row[kRelPad] += row[e];
      row[kRelPad + width - 1] += row[kRelPad + width + e];
    }
  };
  // The rotated and the plain query were both scaled by scale_i log2(e); what
  // comes back to them is multiplied by scale_i, and the log2(e) never was.
  const Tokens& tokens = call_.Queries(b_);
  if (short_table_) {
    const int64_t width = packed_.q_table->map.width();
    for (int64_t i = 0; i < rows; ++i) {
      fold(s_.by_rel.data() + i * rel_stride_, width);
    }
    const PackedRows& table = *bp_.q_rows;
    for (int64_t n = 0; n < n_blocks_; ++n) {
      AddProduct(s_.by_rel.data() + n * kRowsI * rel_stride_ + kRelPad, 1,
                 rel_stride_, table.Head(h_), table.stride, width,
                 s_.d_plain.data() + n * kRowsI * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
    for (int64_t e = 0; e < width; e += kRowsI) {
      AddProduct(s_.by_rel.data() + kRelPad + e, rel_stride_, 1,
                 s_.plain_rows.data(), bp_.dim_stride, rows,
                 g_.q_table.data() + e * bp_.dim_stride, bp_.dim_stride,
                 bp_.dim_stride);
    }
  }
  if (v_rel_stride_ > 0) {
    const int64_t width = packed_.v_table->map.width();
    for (int64_t i = 0; i < rows; ++i) {
      fold(s_.p_by_rel.data() + i * v_rel_stride_, width);
    }
    for (int64_t e = 0; e < width; e += kRowsI) {
      AddProduct(s_.p_by_rel.data() + kRelPad + e, v_rel_stride_, 1,
                 s_.d_rows.data(), bp_.value_pad, rows,
                 g_.v_table.data() + e * bp_.value_pad, bp_.value_pad,
                 bp_.value_pad);
    }
  }
  for (int64_t i = 0; i < count_; ++i) {
    float* d = s_.d_q.data() + i * bp_.depth_stride;
    const size_t at = static_cast<size_t>(first_ + i);
    const int64_t position = tokens.position[at];
    const float scale = static_cast<float>(call_.terms.scale.At(position));
    for (int64_t c = 0; c < packed_.depth; ++c) d[c] *= scale;
    if (packed_.extra > 0 && want_) {
      const int64_t row = position - call_.terms.extra_dot->first_position;
      for (int64_t e = 0; e < packed_.extra; ++e) {
        g_.extra_q[static_cast<size_t>(row * packed_.extra + e)] +=
            d[s.head_dim + e];
      }
    }
    if (call_.terms.rotate) {
      kernels::RotateRowBack(*call_.terms.rotate, packed_.QueryAngles(b_),
                             first_ + i, d);
    }
    // (q + u).k: u gets what q gets from the dot product, before the tables.
    for (size_t c = 0; c < g_.key_row.size(); ++c) {
      g_.key_row[c] += static_cast<double>(d[c]);
    }
    const float* tables = s_.d_plain.data() + i * bp_.dim_stride;
    for (int64_t c = 0; c < s.head_dim; ++c) d[c] += scale * tables[c];
    const int64_t row = (b_ * s.q_heads + h_) * s.q_len + tokens.source[at];
    kernels::StoreRow(*args_.d_q, row, d, s.head_dim);
  }
}

// With dKT = gradient of k_j.Tk[b]:  dk += Tk^T dKT,  dTk += dKT k.
inline void BackwardTask::FinishKeyTable() {
  const CallSizes& s = call_.sizes;
  const Tensor& rows = call_.terms.k_table->rows;
  const int64_t count = rows.size(1), cols = packed_.cols;
  const int64_t head = rows.size(0) == 1 ? 0 : h_;
  const int64_t padded = AlignUp(count, kRowsI);
  FloatBuffer table(padded * bp_.dim_stride), keys(cols * bp_.dim_stride);
  FloatBuffer d_keys(AlignUp(cols, kRowsI) * bp_.dim_stride);
  std::fill_n(table.data(), padded * bp_.dim_stride, 0.0F);
  std::fill_n(keys.data(), cols * bp_.dim_stride, 0.0F);
  std::fill_n(d_keys.data(), AlignUp(cols, kRowsI) * bp_.dim_stride, 0.0F);
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t d = 0; d < s.head_dim; ++d) {
      table.data()[t * bp_.dim_stride + d] =
          static_cast<float>(rows.At(head, t, d));
    }
  }
  const Tokens& tokens = call_.Keys(b_);
  for (int64_t j = 0; j < tokens.size(); ++j) {
    call_.k.Load(b_, call_.KvHead(h_), tokens.source[static_cast<size_t>(j)],
                 keys.data() + j * bp_.dim_stride);
  }
  if (want_) {
    for (int64_t t = 0; t < count; t += kRowsI) {
      AddProduct(d_key_table_.data() + t * cols, 1, cols, keys.data(),
                 bp_.dim_stride, cols, g_.k_table.data() + t * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
  }
  for (int64_t j = 0; j < cols; j += kRowsI) {
    AddProduct(d_key_table_.data() + j, cols, 1, table.data(), bp_.dim_stride,
               count, d_keys.data() + j * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
  for (int64_t j = 0; j < tokens.size(); ++j) {
    const float* row = d_keys.data() + j * bp_.dim_stride;
    g_.plain_keys.insert(g_.plain_keys.end(), row, row + s.head_dim);
  }
}

// The gradients of the keys and values of (b, kv head): the sum over the tasks
// that share them, in order, turned back.
inline void FinishKeys(const BackwardPacked& bp, const BackwardCall& args,
                       int64_t b, int64_t kv, std::span<TaskGrads> tasks) {
  const Call& call = bp.packed.call;
  const CallSizes& s = call.sizes;
  const Tokens& tokens = call.Keys(b);
  const float ln2 = static_cast<float>(1.0 / kLog2E);
  const int64_t depth = bp.packed.depth;
  std::vector<float> d_k(static_cast<size_t>(depth));
  std::vector<float> d_v(static_cast<size_t>(s.value_dim));
  for (int64_t j = 0; j < tokens.size(); ++j) {
    std::fill(d_k.begin(), d_k.end(), 0.0F);
    std::fill(d_v.begin(), d_v.end(), 0.0F);
    for (TaskGrads& g : tasks) {
      const float* k = g.keys.data() + j * bp.depth_stride;
      const float* v = g.values.data() + j * bp.value_pad;
      for (int64_t d = 0; d < s.head_dim; ++d) {
        d_k[static_cast<size_t>(d)] += k[d];
      }
      for (int64_t d = 0; d < s.value_dim; ++d) {
        d_v[static_cast<size_t>(d)] += v[d];
      }
      if (!g.extra_k.empty()) {
        const int64_t row = tokens.position[static_cast<size_t>(j)] -
                            call.terms.extra_dot->first_position;
        for (int64_t e = 0; e < bp.packed.extra; ++e) {
          g.extra_k[static_cast<size_t>(row * bp.packed.extra + e)] +=
              ln2 * k[s.head_dim + e];
        }
      }
    }
    for (float& d : d_k) d *= ln2;
    if (call.terms.rotate) {
      kernels::RotateRowBack(*call.terms.rotate, bp.packed.KeyAngles(b), j,
                             d_k.data());
    }
    for (const TaskGrads& g : tasks) {
      if (g.plain_keys.empty()) continue;
      for (int64_t d = 0; d < s.head_dim; ++d) {
        d_k[static_cast<size_t>(d)] +=
            g.plain_keys[static_cast<size_t>(j * s.head_dim + d)];
      }
    }
    const int64_t row =
        (b * s.kv_heads + kv) * s.k_len + tokens.source[static_cast<size_t>(j)];
    kernels::StoreRow(*args.d_k, row, d_k.data(), s.head_dim);
    kernels::StoreRow(*args.d_v, row, d_v.data(), s.value_dim);
  }
}

// Adds rows by rel, times `factor`, to a gradient [heads or 1, buckets, dim].
inline void AddRowsByRel(const std::vector<float>& rows, int64_t stride,
                         const RelMap& map, double factor, int64_t h,
                         Tensor& grad) {
  const int64_t dim = grad.size(2);
  double* to = grad.MutableData<double>() +
               (grad.size(0) == 1 ? 0 : h) * grad.size(1) * dim;
  for (int64_t e = 0; e < map.width(); ++e) {
    double* row = to + map.bucket[static_cast<size_t>(e)] * dim;
    for (int64_t d = 0; d < dim; ++d) {
      row[d] += factor *
                static_cast<double>(rows[static_cast<size_t>(e * stride + d)]);
    }
  }
}

// Adds what one task found to the gradients of the terms.
inline void AddTermGrads(const BackwardPacked& bp, const TaskGrads& g,
                         int64_t h, TermGrads& grads) {
  const Packed& packed = bp.packed;
  const Terms& terms = packed.call.terms;
  const double ln2 = 1.0 / kLog2E;
  if (terms.q_table) {
    AddRowsByRel(g.q_table, bp.dim_stride, packed.q_table->map, ln2, h,
                 grads.q_table);
  }
  if (terms.v_table) {
    AddRowsByRel(g.v_table, bp.value_pad, packed.v_table->map, 1.0, h,
                 grads.v_table);
  }
  if (terms.k_table) {
    Tensor& d = grads.k_table;
    const int64_t dim = d.size(2), count = d.size(1);
    double* to =
        d.MutableData<double>() + (d.size(0) == 1 ? 0 : h) * count * dim;
    for (size_t c = 0; c < g.key_row.size(); ++c) to[c] += g.key_row[c];
    if (!g.k_table.empty()) {
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t c = 0; c < dim; ++c) {
          to[t * dim + c] += static_cast<double>(
              g.k_table[static_cast<size_t>(t * bp.dim_stride + c)]);
        }
      }
    }
  }
  if (terms.extra_dot) {
    const auto add = [&](const std::vector<float>& from, Tensor& d) {
      double* to = d.MutableData<double>() +
                   (d.size(0) == 1 ? 0 : h) * d.size(1) * d.size(2);
      for (size_t n = 0; n < from.size(); ++n) {
        to[n] += static_cast<double>(from[n]);
      }
    };
    add(g.extra_q, grads.extra_dot->q_rows);
    add(g.extra_k, grads.extra_dot->k_rows);
  }
  if (!terms.bias) return;
  if (std::holds_alternative<BiasTable>(*terms.bias)) {
    Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
    double* to = d.MutableData<double>() + (d.size(0) == 1 ? 0 : h) * d.size(1);
    for (size_t n = 0; n < g.special.size(); ++n) to[n] += g.special[n];
    if (!g.bias.empty()) {
      const RelMap& map = packed.bias->map;
      const int64_t width = map.width();
      for (int64_t n = 0; n < width + 2 * kRelPad; ++n) {
        const int64_t e = std::clamp<int64_t>(n - kRelPad, 0, width - 1);
        to[map.bucket[static_cast<size_t>(e)]] +=
            g.bias[static_cast<size_t>(n)];
      }
    }
  } else if (g.profile) {
    auto& d = std::get<BiasProfileGrads>(*grads.bias);
    for (size_t n = 0; n < d.distance.size(); ++n) {
      d.distance[n] += g.profile->distance[n];
    }
    for (size_t n = 0; n < d.row_gain.size(); ++n) {
      d.row_gain[n] += g.profile->row_gain[n];
    }
    for (int64_t n = 0; n < d.base.NumElements(); ++n) {
      d.base.MutableData<double>()[n] += g.profile->base.Data<double>()[n];
      d.slope.MutableData<double>()[n] += g.profile->slope.Data<double>()[n];
    }
  }
}

void BackwardF32(const BackwardCall& args, int threads) {
  const Call& call = args.call;
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0 || s.k_len == 0) return;
  const Packed packed(call, threads);
  const BackwardPacked bp(packed, args);
  // The division into tasks depends on the shape alone. One a head, and with
  // few heads several stretches of queries, each of four tiles at least.
  constexpr int64_t kEnoughTasks = 8;
  const int64_t group = s.q_heads / s.kv_heads;
  const int64_t stretches =
      std::clamp<int64_t>(kEnoughTasks / (s.batch * s.q_heads), 1,
                          std::max<int64_t>(s.q_len / (4 * kBwdQueries), 1));
  const int64_t stretch =
      AlignUp((s.q_len + stretches - 1) / stretches, kBwdQueries);
  const int64_t per_head = (s.q_len + stretch - 1) / stretch;
  // Sequences are done in waves, so that partial sums do not pile up.
  const int64_t wave =
      std::clamp<int64_t>(kEnoughTasks / (s.q_heads * per_head), 1, s.batch);
  const int64_t per_kv = group * per_head;
  for (int64_t b0 = 0; b0 < s.batch; b0 += wave) {
    const int64_t sequences = std::min(wave, s.batch - b0);
    std::vector<TaskGrads> grads(
        static_cast<size_t>(sequences * s.q_heads * per_head));
    ParallelFor(static_cast<int64_t>(grads.size()), threads, [&](int64_t task) {
      static thread_local BackwardScratch scratch;
      const int64_t part = task % per_head;
      const int64_t h = task / per_head % s.q_heads;
      const int64_t b = b0 + task / per_head / s.q_heads;
      TaskGrads& g = grads[static_cast<size_t>(task)];
      BackwardTask run(bp, args, scratch, g);
      run.Run(b, h, part * stretch,
              std::min(stretch, s.q_len - part * stretch));
      if (per_kv == 1) {
        FinishKeys(bp, args, b, h, {&g, 1});
        g.keys = FloatBuffer();
        g.values = FloatBuffer();
      }
    });
    if (per_kv > 1) {
      ParallelFor(sequences * s.kv_heads, threads, [&](int64_t task) {
        FinishKeys(bp, args, b0 + task / s.kv_heads, task % s.kv_heads,
                   std::span(grads).subspan(static_cast<size_t>(task * per_kv),
                                            static_cast<size_t>(per_kv)));
      });
    }
    if (args.want_terms) {
      for (size_t n = 0; n < grads.size(); ++n) {
        AddTermGrads(bp, grads[n],
                     static_cast<int64_t>(n) / per_head % s.q_heads,
                     *args.grads);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_ATTENTION_BWD_INL_H_

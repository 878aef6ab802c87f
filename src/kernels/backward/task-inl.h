// One task of the backward pass: a stretch of queries of one head against all
// keys. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#endif

#include <vector>

#include "kernels/backward/terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class BackwardTask {
 public:
  BackwardTask(const BackwardPacked& bp, const BackwardCall& args,
               BackwardTile& scratch, TaskGrads& grads);

  // Queries [first, first + count) of (b, h), all keys.
  void Run(int64_t b, int64_t h, int64_t first, int64_t count);

 private:
  int64_t SpanKeys() const;
  void RunQueries(int64_t first, int64_t count, Interval span, bool add);
  void LoadQueries(int64_t first, int64_t count, Interval span);
  void ScoreBlock(int64_t n, int64_t tile, int64_t keys);
  void AddProducts(int64_t tile, int64_t keys);
  void AddToQueries(int64_t tile, int64_t keys);
  void AddToKeys(int64_t tile, int64_t keys);
  // For each pair of a query i and a key j of the tile that it sees.
  template <typename F>
  void ForSeen(int64_t tile, int64_t keys, const F& f) const;
  void StoreQueries(bool add);

  const BackwardPacked& bp_;
  const Packed& packed_;
  const Call& call_;
  const BackwardCall& args_;
  BackwardTile& t_;
  TaskGrads& g_;
  Scorer scorer_;
  KeyTable key_table_;
  DisentangledRows disentangled_;
  TermBackward terms_;
};

inline BackwardTask::BackwardTask(const BackwardPacked& bp,
                                  const BackwardCall& args,
                                  BackwardTile& scratch, TaskGrads& grads)
    : bp_(bp),
      packed_(bp.packed),
      call_(bp.packed.call),
      args_(args),
      t_(scratch),
      g_(grads),
      scorer_(bp.packed),
      terms_(bp, scorer_, args.want_terms, scratch, grads) {
  // Keys are added to kRows at a time, which may reach past the last panel.
  const int64_t rows = packed_.cols + kRowsI;
  g_.keys.Resize(rows * bp_.depth_stride);
  g_.values.Resize(rows * bp_.value_pad);
  std::fill_n(g_.keys.data(), rows * bp_.depth_stride, 0.0F);
  std::fill_n(g_.values.data(), rows * bp_.value_pad, 0.0F);
  if (call_.terms.extra_dot && args.want_terms) {
    const ExtraDot& dot = *call_.terms.extra_dot;
    g_.extra_q.assign(static_cast<size_t>(dot.q_rows.size(1) * packed_.extra),
                      0.0F);
    g_.extra_k.assign(static_cast<size_t>(dot.k_rows.size(1) * packed_.extra),
                      0.0F);
  }
  // The gaps between rows stay zero.
  const int64_t size = kBwdGap + kBwdQueries * kBwdStride;
  t_.p.Resize(size);
  t_.ds.Resize(size);
  std::fill_n(t_.p.data(), size, 0.0F);
  std::fill_n(t_.ds.data(), size, 0.0F);
}

inline void BackwardTask::Run(int64_t b, int64_t h, int64_t first,
                              int64_t count) {
  t_.b = b;
  t_.h = h;
  if (scorer_.needs_key_table()) {
    key_table_.Build(packed_, b, h);
    scorer_.SetKeyTable(&key_table_);
    if (DisentangledRows::Fits(packed_))
      disentangled_.BeginHead(packed_, b, h, key_table_);
  }
  terms_.BeginHead();
  const int64_t keys = call_.Keys(b).size(), step = SpanKeys();
  std::vector<bool> stored(
      static_cast<size_t>((count + kBwdQueries - 1) / kBwdQueries));
  int64_t begin = 0;
  do {
    const Interval span{begin, std::min(begin + step, keys)};
    begin += step;
    for (int64_t q = 0; q < count; q += kBwdQueries) {
      const int64_t queries = std::min(kBwdQueries, count - q);
      const bool seen =
          !Within(call_.AnyVisible(b, first + q, queries), span).empty();
      const size_t at = static_cast<size_t>(q / kBwdQueries);
      // Queries that see nothing at all are stored with the last span.
      if (!seen && (stored[at] || begin < keys)) continue;
      CheckInterrupt();
      RunQueries(first + q, queries, span, stored[at]);
      stored[at] = true;
    }
  } while (begin < keys);
  terms_.EndHead();
}

// All queries meet a span of keys before the next one. What is packed and
// summed for the keys passes through the core once for each 96 queries: 8 MiB
// of it stay near, while that of 16384 keys would come from memory each time.
// Spans depend on the shape alone. Their parts of dq are added where they are
// stored, which only float32 allows.
inline int64_t BackwardTask::SpanKeys() const {
  constexpr int64_t kSpanFloats = int64_t{2} << 20;
  const int64_t keys = call_.sizes.k_len;
  if (args_.d_q->dtype() != DType::kF32) return keys;
  const int64_t floats = packed_.depth + call_.sizes.value_dim +
                         2 * bp_.depth_stride + bp_.value_pad;
  const int64_t most = std::max(kSpanFloats / floats, 4 * kBwdKeys);
  const int64_t spans = (keys + most - 1) / most;
  return AlignUp((keys + spans - 1) / spans, kBwdKeys);
}

// The gradients of queries [first, first + count) and of the keys of the span
// that they see.
inline void BackwardTask::RunQueries(int64_t first, int64_t count,
                                     Interval span, bool add) {
  LoadQueries(first, count, span);
  terms_.BeginQueries();
  const Interval any = t_.Any();
  for (int64_t tile = any.begin < any.end ? AlignDown(any.begin, kBwdKeys)
                                          : any.end;
       tile < any.end; tile += kBwdKeys) {
    const int64_t keys = std::min(kBwdKeys, any.end - tile);
    for (int64_t n = 0; n < t_.n_blocks; ++n) ScoreBlock(n, tile, keys);
    AddProducts(tile, keys);
    terms_.AddKeys(tile, keys);
  }
  terms_.EndQueries();
  StoreQueries(add);
}

inline void BackwardTask::LoadQueries(int64_t first, int64_t count,
                                      Interval span) {
  const CallSizes& s = call_.sizes;
  t_.first = first;
  t_.count = count;
  t_.n_blocks = (count + kRowsI - 1) / kRowsI;
  const int64_t rows = t_.n_blocks * kRowsI;
  t_.block_memory.Resize(t_.n_blocks * scorer_.BlockFloats());
  const auto clear = [](FloatBuffer& buffer, int64_t size) {
    buffer.Resize(size);
    std::fill_n(buffer.data(), size, 0.0F);
  };
  t_.q_rows.Resize(kBwdQueries * bp_.depth_stride);
  t_.d_rows.Resize(kBwdQueries * bp_.value_pad);
  clear(t_.d_q, kBwdQueries * bp_.depth_stride);
  if (packed_.q_table) {
    t_.plain_rows.Resize(kBwdQueries * bp_.dim_stride);
    clear(t_.d_plain, kBwdQueries * bp_.dim_stride);
  }
  t_.d_pack.Resize(kBwdQueries * s.value_dim);
  t_.blocks.assign(static_cast<size_t>(t_.n_blocks), Block());
  t_.lse.assign(static_cast<size_t>(rows), 0.0F);
  t_.delta.assign(static_cast<size_t>(rows), 0.0F);
  if (scorer_.needs_key_table() && DisentangledRows::Fits(packed_)) {
    const bool straight = disentangled_.BeginQueries(
        first, count, Within(call_.AnyVisible(t_.b, first, count), span));
    scorer_.SetDisentangled(straight ? &disentangled_ : nullptr);
  }
  const Tokens& tokens = call_.Queries(t_.b);
  t_.d_block.Resize(kRowsI * s.value_dim);
  t_.finite = true;
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    Block& block = t_.blocks[static_cast<size_t>(n)];
    const int64_t row = n * kRowsI;
    scorer_.Prepare(t_.b, t_.h, first + row, std::min(kRowsI, count - row),
                    t_.block_memory.data() + n * scorer_.BlockFloats(), block);
    block.any = Within(block.any, span);
    block.all = Within(block.all, span);
    for (int64_t r = 0; r < kRowsI; ++r) {
      block.seen[r] = Within(block.seen[r], span);
      const int64_t i = row + r;
      float* d_row = t_.d_block.data() + r * s.value_dim;
      if (r < block.count) {
        const int64_t source = tokens.source[static_cast<size_t>(first + i)];
        args_.d_out.Load(t_.b, t_.h, source, d_row);
        const int64_t at = (t_.b * s.q_heads + t_.h) * s.q_len + source;
        t_.lse[static_cast<size_t>(i)] =
            static_cast<float>(static_cast<double>(args_.lse[at]) * kLog2E);
        t_.delta[static_cast<size_t>(i)] =
            (*bp_.delta)[static_cast<size_t>(at)];
        // A row that saw nothing has no gradient.
        if (args_.lse[at] == kMinusInf) block.seen[r] = {0, 0};
      } else {
        std::fill_n(d_row, s.value_dim, 0.0F);
      }
      t_.finite &= Finite(scorer_.DotRow(r), packed_.depth) &&
                   Finite(d_row, s.value_dim);
      const auto write = [&](const float* from, int64_t width,
                             FloatBuffer& to) {
        WritePanels(from, width, kBwdQueries, to.data() + i * kColsI);
      };
      write(scorer_.DotRow(r), packed_.depth, t_.q_rows);
      write(d_row, s.value_dim, t_.d_rows);
      if (packed_.q_table) {
        write(scorer_.PlainRow(r), s.head_dim, t_.plain_rows);
      }
    }
    PackBlock(t_.d_block.data(), s.value_dim,
              t_.d_pack.data() + row * s.value_dim);
  }
}

// p and ds of block n against keys [tile, tile + keys): zeros where a row does
// not see a key, also in the columns behind the last key that products and
// diagonals may read.
inline void BackwardTask::ScoreBlock(int64_t n, int64_t tile, int64_t keys) {
  const Block& block = t_.blocks[static_cast<size_t>(n)];
  float* p = t_.P(n * kRowsI);
  float* ds = t_.Ds(n * kRowsI);
  const int64_t cols = std::min(kBwdKeys, keys + kBwdGap);
  const auto [begin, end] = Within(block.any, {tile, tile + keys});
  if (begin >= end) {
    for (int64_t r = 0; r < kRowsI; ++r) {
      std::fill_n(p + r * kBwdStride, cols, 0.0F);
      std::fill_n(ds + r * kBwdStride, cols, 0.0F);
    }
    return;
  }
  const int64_t lo = AlignDown(begin, kColsI);
  scorer_.Scores<kBwdStride>(block, tile, lo, end, p, /*row_max=*/nullptr);
  // dp = do v^T
  const int64_t dv = call_.sizes.value_dim;
  const float* v = bp_.ValuePanels(t_.b, t_.h);
  for (int64_t c = lo; c < end; c += kColsI) {
    Product(t_.d_pack.data() + n * kRowsI * dv, kRows, kAdjacent, v + c * dv,
            kCols, static_cast<size_t>(dv), Store{ds + (c - tile), kBwdStride});
  }
  const float cap = static_cast<float>(call_.softcap * kLog2E);
  const Exp2Reference zero(0.0F);
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* pr = p + r * kBwdStride - tile;  // indexed by key
    float* dr = ds + r * kBwdStride - tile;
    const Interval seen = Scorer::Vectors(block, r, lo, end);
    if (r >= block.count || seen.begin == seen.end) {
      std::fill_n(pr + tile, cols, 0.0F);
      std::fill_n(dr + tile, cols, 0.0F);
      continue;
    }
    terms_.AddToDp(block, n * kRowsI + r, r, seen, dr);
    const size_t i = static_cast<size_t>(n * kRowsI + r);
    const VF lse = hn::Set(kDF, t_.lse[i]);
    const VF delta = hn::Set(kDF, t_.delta[i]);
    for (int64_t j = seen.begin; j < seen.end; j += kLanesI) {
      const VF s = hn::LoadU(kDF, pr + j);
      const VF prob = Exp2(hn::Sub(s, lse), zero);
      VF d = hn::Mul(prob, hn::Sub(hn::LoadU(kDF, dr + j), delta));
      if (cap > 0.0F) {
        // c = cap tanh(s / cap)  =>  ds = dc (1 - (c / cap)^2)
        const VF t = hn::Mul(s, hn::Set(kDF, 1.0F / cap));
        d = hn::Mul(d, hn::NegMulAdd(t, t, hn::Set(kDF, 1.0F)));
      }
      hn::StoreU(prob, kDF, pr + j);
      hn::StoreU(d, kDF, dr + j);
    }
    // What the row does not see has weight and slope zero.
    const int64_t from = std::max(seen.begin, block.seen[r].begin);
    const int64_t to = std::min(seen.end, block.seen[r].end);
    for (int64_t j = tile; j < from; ++j) pr[j] = dr[j] = 0.0F;
    for (int64_t j = to; j < tile + cols; ++j) pr[j] = dr[j] = 0.0F;
  }
}

// The products of a tile: dq += ds k, dk += ds^T q, dv += p^T do. 0 * inf is
// NaN: where an operand is not finite, only pairs that see each other meet.
inline void BackwardTask::AddProducts(int64_t tile, int64_t keys) {
  if (bp_.KeysFinite(t_.b, t_.h)) {
    AddToQueries(tile, keys);
  } else {
    const InPanels k = bp_.KeyRows(t_.b, t_.h);
    ForSeen(tile, keys, [&](int64_t i, int64_t j) {
      AddPanelRow(t_.Ds(i)[j - tile], k, j,
                  t_.d_q.data() + i * bp_.depth_stride, bp_.depth_stride);
    });
  }
  if (t_.finite) {
    AddToKeys(tile, keys);
  } else {
    ForSeen(tile, keys, [&](int64_t i, int64_t j) {
      AddPanelRow(t_.Ds(i)[j - tile], t_.Q(), i,
                  g_.keys.data() + j * bp_.depth_stride, bp_.depth_stride);
      AddPanelRow(t_.P(i)[j - tile], t_.DOut(), i,
                  g_.values.data() + j * bp_.value_pad, bp_.value_pad);
    });
  }
}

template <typename F>
void BackwardTask::ForSeen(int64_t tile, int64_t keys, const F& f) const {
  for (int64_t i = 0; i < t_.count; ++i) {
    const Block& block = t_.blocks[static_cast<size_t>(i / kRowsI)];
    const Interval seen = Within(block.seen[i % kRowsI], {tile, tile + keys});
    for (int64_t j = seen.begin; j < seen.end; ++j) f(i, j);
  }
}

inline void BackwardTask::AddToQueries(int64_t tile, int64_t keys) {
  const InPanels k = bp_.KeyRows(t_.b, t_.h);
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    const Block& block = t_.blocks[static_cast<size_t>(n)];
    const auto [begin, end] = Within(block.any, {tile, tile + keys});
    if (begin >= end) continue;
    AddProduct(t_.Ds(n * kRowsI) + (begin - tile), 1, Fixed<kBwdStride>(),
               k.From(begin), end - begin,
               t_.d_q.data() + n * kRowsI * bp_.depth_stride, bp_.depth_stride,
               bp_.depth_stride);
  }
}

inline void BackwardTask::AddToKeys(int64_t tile, int64_t keys) {
  for (int64_t j = 0; j < keys; j += kRowsI) {
    // The queries of the tile that see any of these kRows keys.
    int64_t from = t_.n_blocks, to = 0;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      const Interval& any = t_.blocks[static_cast<size_t>(n)].any;
      if (any.begin < tile + j + kRowsI && any.end > tile + j) {
        from = std::min(from, n);
        to = n + 1;
      }
    }
    if (from >= to) continue;
    const int64_t row = from * kRowsI, depth = (to - from) * kRowsI;
    AddProduct(t_.Ds(row) + j, kBwdStride, kAdjacent, t_.Q().From(row), depth,
               g_.keys.data() + (tile + j) * bp_.depth_stride, bp_.depth_stride,
               bp_.depth_stride);
    AddProduct(t_.P(row) + j, kBwdStride, kAdjacent, t_.DOut().From(row), depth,
               g_.values.data() + (tile + j) * bp_.value_pad, bp_.value_pad,
               bp_.value_pad);
  }
}

inline void BackwardTask::StoreQueries(bool add) {
  const CallSizes& s = call_.sizes;
  const Tokens& tokens = call_.Queries(t_.b);
  // The rotated and the plain query were both scaled by scale_i log2(e); what
  // comes back to them is multiplied by scale_i, and the log2(e) never was.
  for (int64_t i = 0; i < t_.count; ++i) {
    float* d = t_.d_q.data() + i * bp_.depth_stride;
    const size_t at = static_cast<size_t>(t_.first + i);
    const int64_t position = tokens.position[at];
    const float scale = static_cast<float>(call_.terms.scale.At(position));
    SetScaled(scale, d, packed_.depth, d);
    if (!g_.extra_q.empty()) {
      const int64_t row = position - call_.terms.extra_dot->first_position;
      for (int64_t e = 0; e < packed_.extra; ++e) {
        g_.extra_q[static_cast<size_t>(row * packed_.extra + e)] +=
            d[s.head_dim + e];
      }
    }
    if (call_.terms.rotate) {
      const RowAngles angles = packed_.QueryAngles(t_.b, t_.first + i);
      RotateRow(*call_.terms.rotate, angles.cos, angles.sin, d, d,
                /*back=*/true);
    }
    // (q + u).k: u gets what q gets from the dot product, before the tables.
    for (size_t c = 0; c < g_.key_row.size(); ++c) {
      g_.key_row[c] += static_cast<double>(d[c]);
    }
    if (packed_.q_table) {
      AddScaled(scale, t_.d_plain.data() + i * bp_.dim_stride, s.head_dim, d);
    }
    const int64_t row = (t_.b * s.q_heads + t_.h) * s.q_len + tokens.source[at];
    if (add) {
      AddScaled(1.0F, d, s.head_dim,
                args_.d_q->MutableData<float>() + row * s.head_dim);
    } else {
      kernels::StoreRow(*args_.d_q, row, d, s.head_dim);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_

// A backward task as run by one worker: a range of queries of one head against
// all keys. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "kernels/backward/rotation-inl.h"
#include "kernels/backward/terms-inl.h"
#include "kernels/terms/dropout-inl.h"
#include "kernels/terms/log2_domain.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class BackwardWorker {
 public:
  // With room to pack `own_units` units, and for the sums of `own_tasks` tasks.
  BackwardWorker(const BackwardTables& bp, const BackwardCall& args,
                 int64_t own_units, int64_t own_tasks, int64_t stretch);

  // Runs queries [first, first + count) of (b, h) against all keys, as packed
  // in `operands`.
  void Run(const BackwardPacked& operands, int64_t b, int64_t h, int64_t first,
           int64_t count, KeySums& sums, TermSums& term_sums) noexcept;

  BackwardPacked own;
  std::vector<KeySums> own_sums;
  FloatBuffer d_key;  // scratch: d_k and d_v of one token, [depth + value_dim]

 private:
  int64_t SpanKeys() const;
  void RunQueries(int64_t first, int64_t count, Interval span, bool add);
  void LoadQueries(int64_t first, int64_t count, Interval span);
  void ScoreBlock(int64_t n, int64_t tile, int64_t keys);
  void AddProducts(int64_t tile, int64_t keys);
  void AddToQueries(int64_t tile);
  void AddToKeys(int64_t tile, int64_t keys);
  // Calls f(i, j) for each pair of the tile in which query i sees key j.
  template <typename F>
  void ForSeen(const F& f) const;
  void AddToScale(int64_t i, int64_t position, const float* d);
  void StoreQueries(bool add);

  const BackwardTables& bp_;
  const PackedTables& packed_;
  const Call& call_;
  const BackwardCall& args_;
  const BackwardPacked* operands_ = nullptr;
  Scorer scorer_;
  const DropoutTerm dropout_;
  FloatBuffer unscaled_;  // one query, for the gradient of its scale
  KeyTable key_table_;
  DisentangledRows disentangled_;
  BackwardTile t_;
  TermBackward terms_;
  std::vector<uint8_t> stored_;  // whether a tile of queries has written its dq
};

inline BackwardWorker::BackwardWorker(const BackwardTables& bp,
                                      const BackwardCall& args,
                                      int64_t own_units, int64_t own_tasks,
                                      int64_t stretch)
    : own(bp, own_units, /*workers=*/1),
      d_key(bp.packed.depth + bp.packed.call.sizes.value_dim),
      bp_(bp),
      packed_(bp.packed),
      call_(bp.packed.call),
      args_(args),
      scorer_(bp.packed),
      dropout_(call_),
      unscaled_(packed_.depth + packed_.table_dim),
      key_table_(bp.packed),
      disentangled_(bp.packed, key_table_),
      t_(bp, scorer_.BlockFloats()),
      terms_(bp, scorer_, t_),
      stored_(static_cast<size_t>((stretch + kBwdQueries - 1) / kBwdQueries)) {
  own_sums.reserve(static_cast<size_t>(own_tasks));
  for (int64_t n = 0; n < own_tasks; ++n) own_sums.emplace_back(bp);
}

inline void BackwardWorker::Run(const BackwardPacked& operands, int64_t b,
                                int64_t h, int64_t first, int64_t count,
                                KeySums& sums, TermSums& term_sums) noexcept {
  operands_ = &operands;
  t_.b = b;
  t_.h = h;
  t_.sums = &sums;
  t_.term_sums = &term_sums;
  sums.Clear();
  term_sums.Clear();
  scorer_.SetKeys(operands.packed, key_table_);
  if (packed_.HasKeyTable()) {
    key_table_.Build(operands.packed, b, h);
    disentangled_.BeginHead(b, h);
  }
  terms_.BeginHead(first);
  const int64_t keys = call_.Keys(b).size(), step = SpanKeys();
  std::ranges::fill(stored_, uint8_t{0});
  int64_t begin = 0;
  do {
    const Interval span{begin, std::min(begin + step, keys)};
    begin += step;
    for (int64_t q = 0; q < count; q += kBwdQueries) {
      const int64_t queries = std::min(kBwdQueries, count - q);
      const bool seen =
          !Within(call_.AnyVisible(b, first + q, queries), span).empty();
      uint8_t& stored = stored_[static_cast<size_t>(q / kBwdQueries)];
      // Queries that see no key are stored with the last span.
      if (!seen && (stored != 0 || begin < keys)) continue;
      if (Interrupted()) return;
      RunQueries(first + q, queries, span, stored != 0);
      stored = 1;
    }
  } while (begin < keys);
  terms_.EndHead();
}

// All queries of a task run over one span of keys before the next. The packed
// keys and their sums are read and written once per 96 queries: 8 MiB of them
// stay in cache, while those of 16384 keys would come from memory each time.
// Spans depend on the shape alone. Several spans accumulate dq in the output
// tensor, so that must be float32.
inline int64_t BackwardWorker::SpanKeys() const {
  constexpr int64_t kSpanFloats = int64_t{2} << 20;
  const int64_t keys = call_.sizes.k_len;
  if (args_.d_q->dtype() != DType::kF32) return keys;
  const int64_t floats = packed_.depth + call_.sizes.value_dim +
                         2 * bp_.depth_stride + bp_.value_pad;
  const int64_t most = std::max(kSpanFloats / floats, 4 * kBwdKeys);
  const int64_t spans = (keys + most - 1) / most;
  return AlignUp((keys + spans - 1) / spans, kBwdKeys);
}

// Computes the gradients of queries [first, first + count) and of the keys of
// the span that they see.
inline void BackwardWorker::RunQueries(int64_t first, int64_t count,
                                       Interval span, bool add) {
  LoadQueries(first, count, span);
  terms_.BeginQueries();
  const Interval any = t_.Any();
  for (int64_t tile = AlignDown(any.begin, kBwdKeys); tile < any.end;
       tile += kBwdKeys) {
    const int64_t keys = std::min(kBwdKeys, any.end - tile);
    bool seen = false;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      t_.look[n] = scorer_.Look(t_.blocks[n], {tile, tile + keys});
      seen |= !t_.look[n].any.empty();
    }
    if (!seen) continue;
    for (int64_t n = 0; n < t_.n_blocks; ++n) ScoreBlock(n, tile, keys);
    AddProducts(tile, keys);
    terms_.AddKeys(tile, keys);
  }
  terms_.EndQueries();
  StoreQueries(add);
}

inline void BackwardWorker::LoadQueries(int64_t first, int64_t count,
                                        Interval span) {
  const CallSizes& s = call_.sizes;
  t_.first = first;
  t_.count = count;
  t_.n_blocks = (count + kRowsI - 1) / kRowsI;
  std::fill_n(t_.d_q.data(), kBwdQueries * bp_.depth_stride, 0.0F);
  if (packed_.q_table) {
    std::fill_n(t_.d_plain.data(), kBwdQueries * bp_.table_stride, 0.0F);
  }
  std::ranges::fill(t_.key_dots, 0.0);
  const bool straight = disentangled_.BeginQueries(
      first, count, Within(call_.AnyVisible(t_.b, first, count), span));
  scorer_.SetDisentangled(straight ? &disentangled_ : nullptr);
  const Tokens& tokens = call_.Queries(t_.b);
  t_.finite = true;
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    Block& block = t_.blocks[n];
    const int64_t row = n * kRowsI;
    scorer_.Prepare(t_.b, t_.h, first + row, std::min(kRowsI, count - row),
                    t_.block_memory.data() + n * scorer_.BlockFloats(), block);
    block.any = Within(block.any, span);
    for (int64_t r = 0; r < kRowsI; ++r) {
      block.seen[r] = Within(block.seen[r], span);
      const int64_t i = row + r;
      float* d_row = t_.d_block.data() + r * s.value_dim;
      if (r < block.count) {
        const int64_t source = tokens.source[static_cast<size_t>(first + i)];
        args_.d_out.Load(t_.b, t_.h, source, d_row);
        RotateValues(call_, packed_.OutputAngles(t_.b, t_.h, first + i), d_row);
        const int64_t at = (t_.b * s.q_heads + t_.h) * s.q_len + source;
        t_.lse[i] =
            static_cast<float>(static_cast<double>(args_.lse[at]) * kLog2E);
        t_.delta[i] = bp_.delta[static_cast<size_t>(at)];
        // A row that sees no key has no gradient.
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
        write(scorer_.PlainRow(r), packed_.table_dim, t_.plain_rows);
      }
    }
    PackBlock(t_.d_block.data(), s.value_dim,
              t_.d_pack.data() + row * s.value_dim);
  }
}

// Computes p and ds of block n against keys [tile, tile + keys): zero for keys
// that a row does not see, and in the columns past the last key that products
// and diagonals may read.
inline void BackwardWorker::ScoreBlock(int64_t n, int64_t tile, int64_t keys) {
  const Block& block = t_.blocks[n];
  float* p = t_.P(n * kRowsI);
  float* ds = t_.Ds(n * kRowsI);
  const int64_t cols = std::min(kBwdKeys, keys + kBwdGap);
  const TileRows& look = t_.look[n];
  const auto [begin, end] = look.any;
  if (begin >= end) {
    for (int64_t r = 0; r < kRowsI; ++r) {
      std::fill_n(p + r * kBwdStride, cols, 0.0F);
      std::fill_n(ds + r * kBwdStride, cols, 0.0F);
    }
    return;
  }
  const int64_t lo = AlignDown(begin, kColsI);
  scorer_.Scores<kBwdStride>(block, look, tile, lo, end, p,
                             /*row_max=*/nullptr);
  // dp = do v^T
  const int64_t dv = call_.sizes.value_dim;
  const float* v = operands_->ValuePanels(t_.b, t_.h);
  for (int64_t c = lo; c < end; c += kColsI) {
    Product(t_.d_pack.data() + n * kRowsI * dv, kRows, kAdjacent, v + c * dv,
            kCols, static_cast<size_t>(dv), Store{ds + (c - tile), kBwdStride});
  }
  const float cap = static_cast<float>(call_.softcap * kLog2E);
  const Exp2Reference zero(0.0F);
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* pr = p + r * kBwdStride - tile;  // indexed by key
    float* dr = ds + r * kBwdStride - tile;
    const Interval seen = Scorer::Vectors(look, r);
    if (r >= block.count || seen.empty()) {
      std::fill_n(pr + tile, cols, 0.0F);
      std::fill_n(dr + tile, cols, 0.0F);
      continue;
    }
    terms_.AddToDp(block, n * kRowsI + r, r, seen, dr);
    const VF lse = hn::Set(kDF, t_.lse[n * kRowsI + r]);
    const VF delta = hn::Set(kDF, t_.delta[n * kRowsI + r]);
    // Replaces scores by p, and dp by ds; dropped pairs have weight and dp
    // zero.
    const auto step = [&](int64_t j, VF dp) HWY_ATTR {
      const VF s = hn::LoadU(kDF, pr + j);
      const VF prob = Exp2(hn::Sub(s, lse), zero);
      VF d = hn::Mul(prob, hn::Sub(dp, delta));
      if (cap > 0.0F) {
        // c = cap tanh(s / cap)  =>  ds = dc (1 - (c / cap)^2)
        const VF t = hn::Mul(s, hn::Set(kDF, 1.0F / cap));
        d = hn::Mul(d, hn::NegMulAdd(t, t, hn::Set(kDF, 1.0F)));
      }
      hn::StoreU(d, kDF, dr + j);
      return prob;
    };
    if (dropout_.present()) {
      const VF gain = hn::Set(kDF, dropout_.gain());
      dropout_.ForVectors(
          block.b, block.h, block.first + r, seen.begin, seen.end,
          [&](int64_t j, auto kept) HWY_ATTR {
            const VF weight = hn::IfThenElseZero(kept, gain);
            const VF dp =
                hn::IfThenElseZero(kept, hn::Mul(gain, hn::LoadU(kDF, dr + j)));
            hn::StoreU(hn::Mul(weight, step(j, dp)), kDF, pr + j);
          });
    } else {
      for (int64_t j = seen.begin; j < seen.end; j += kLanesI) {
        hn::StoreU(step(j, hn::LoadU(kDF, dr + j)), kDF, pr + j);
      }
    }
    // Keys that the row does not see have p = ds = 0.
    const Interval own = look.seen[r];
    for (int64_t j = tile; j < own.begin; ++j) pr[j] = dr[j] = 0.0F;
    for (int64_t j = own.end; j < tile + cols; ++j) pr[j] = dr[j] = 0.0F;
    if (!look.any_gaps) continue;
    scorer_.SetHidden(block, look, r, 0.0F, pr);
    scorer_.SetHidden(block, look, r, 0.0F, dr);
  }
}

// The products of a tile: dq += ds k, dk += ds^T q, dv += p^T do. 0 * inf is
// NaN, so if an operand is not finite, only visible pairs are multiplied.
inline void BackwardWorker::AddProducts(int64_t tile, int64_t keys) {
  if (operands_->KeysFinite(t_.b, t_.h)) {
    AddToQueries(tile);
  } else {
    const InPanels k = operands_->KeyRows(t_.b, t_.h);
    ForSeen([&](int64_t i, int64_t j) {
      AddPanelRow(t_.Ds(i)[j - tile], k, j,
                  t_.d_q.data() + i * bp_.depth_stride, bp_.depth_stride);
    });
  }
  if (t_.finite) {
    AddToKeys(tile, keys);
  } else {
    ForSeen([&](int64_t i, int64_t j) {
      AddPanelRow(t_.Ds(i)[j - tile], t_.Q(), i,
                  t_.sums->keys.data() + j * bp_.depth_stride,
                  bp_.depth_stride);
      AddPanelRow(t_.P(i)[j - tile], t_.DOut(), i,
                  t_.sums->values.data() + j * bp_.value_pad, bp_.value_pad);
    });
  }
}

template <typename F>
void BackwardWorker::ForSeen(const F& f) const {
  for (int64_t i = 0; i < t_.count; ++i) {
    const TileRows& look = t_.look[i / kRowsI];
    int64_t j = look.seen[i % kRowsI].begin;
    const auto up_to = [&](int64_t end) {
      for (; j < end; ++j) f(i, j);
    };
    if (look.gaps[i % kRowsI]) {
      call_.ForHidden(t_.b, t_.h, t_.first + i, look.seen[i % kRowsI],
                      [&](int64_t begin, int64_t end) {
                        up_to(begin);
                        j = std::max(j, end);
                      });
    }
    up_to(look.seen[i % kRowsI].end);
  }
}

inline void BackwardWorker::AddToQueries(int64_t tile) {
  const InPanels k = operands_->KeyRows(t_.b, t_.h);
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    const auto [begin, end] = t_.look[n].any;
    if (begin >= end) continue;
    AddProduct(t_.Ds(n * kRowsI) + (begin - tile), 1, Fixed<kBwdStride>(),
               k.From(begin), end - begin,
               t_.d_q.data() + n * kRowsI * bp_.depth_stride, bp_.depth_stride,
               bp_.depth_stride);
  }
}

inline void BackwardWorker::AddToKeys(int64_t tile, int64_t keys) {
  for (int64_t j = 0; j < keys; j += kRowsI) {
    // The blocks with queries that see any of these kRows keys.
    int64_t from = t_.n_blocks, to = 0;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      const Interval& any = t_.look[n].any;
      if (any.begin < tile + j + kRowsI && any.end > tile + j) {
        from = std::min(from, n);
        to = n + 1;
      }
    }
    if (from >= to) continue;
    const int64_t row = from * kRowsI, depth = (to - from) * kRowsI;
    AddProduct(t_.Ds(row) + j, kBwdStride, kAdjacent, t_.Q().From(row), depth,
               t_.sums->keys.data() + (tile + j) * bp_.depth_stride,
               bp_.depth_stride, bp_.depth_stride);
    AddProduct(t_.P(row) + j, kBwdStride, kAdjacent, t_.DOut().From(row), depth,
               t_.sums->values.data() + (tile + j) * bp_.value_pad,
               bp_.value_pad, bp_.value_pad);
  }
}

// s_ij = scale g (x_i.k_j + r_i.Tq[b] + k_j.Tk[b]) + ...: the gradient of g is
// the dot product of the unscaled operands with their gradients. `d` is the
// gradient of the rotated query.
inline void BackwardWorker::AddToScale(int64_t i, int64_t position,
                                       const float* d) {
  const int64_t depth = packed_.depth, width = packed_.table_dim;
  float* plain = packed_.q_table ? unscaled_.data() + depth : nullptr;
  packed_.LoadUnscaled(t_.b, t_.h, t_.first + i, unscaled_.data(), plain);
  const auto dot = [](const float* x, const float* y, int64_t n) {
    double sum = 0.0;
    for (int64_t c = 0; c < n; ++c) {
      sum += static_cast<double>(x[c]) * static_cast<double>(y[c]);
    }
    return sum;
  };
  double sum = dot(unscaled_.data(), d, depth);
  if (plain != nullptr) {
    sum += dot(plain, t_.d_plain.data() + i * bp_.table_stride, width);
  }
  sum += t_.key_dots[i];
  const Scale& scale = call_.terms.scale;
  t_.term_sums->scale[static_cast<size_t>(position - scale.first_position)] +=
      scale.scale * sum;
}

inline void BackwardWorker::StoreQueries(bool add) {
  const CallSizes& s = call_.sizes;
  const Tokens& tokens = call_.Queries(t_.b);
  // The rotated and the plain query were both multiplied by scale_i log2(e).
  // Their gradients are multiplied by scale_i alone, since ds is that of scores
  // in natural units.
  const ThetaGrad theta(call_, t_.b);
  for (int64_t i = 0; i < t_.count; ++i) {
    float* d = t_.d_q.data() + i * bp_.depth_stride;
    const size_t at = static_cast<size_t>(t_.first + i);
    const int64_t position = tokens.position[at];
    const float scale =
        static_cast<float>(call_.terms.scale.At(t_.h, position));
    if (call_.terms.scale.rows.defined()) AddToScale(i, position, d);
    // t_.Q() includes the scale log2(e); d is not scaled yet.
    if (!t_.term_sums->theta.empty()) {
      theta.Add(position, t_.Q().From(i), d, 1.0 / kLog2E, t_.term_sums->theta);
    }
    SetScaled(scale, d, packed_.depth, d);
    if (packed_.extra > 0) {
      const int64_t row = position - call_.terms.extra_dot->first_position;
      AddScaled(1.0F, d + s.head_dim, packed_.extra,
                t_.term_sums->extra_q.data() + row * packed_.extra);
    }
    if (call_.terms.rotate) {
      const RowAngles angles = packed_.QueryAngles(t_.b, t_.h, t_.first + i);
      RotateRow(*call_.terms.rotate, angles.cos, angles.sin, d, d,
                /*back=*/true);
    }
    // (q + u).k: the gradient of u is that of q through the dot product alone,
    // before that of the tables is added.
    const float* dot = d;
    for (double& sum : t_.term_sums->key_row) {
      sum += static_cast<double>(*dot++);
    }
    const int64_t source = tokens.source[at];
    const int64_t row = (t_.b * s.q_heads + t_.h) * s.q_len + source;
    if (packed_.q_table) {
      // To the queries, or to table_queries if the call has them.
      float* to = packed_.table_queries
                      ? args_.operands->table_queries.MutableData<float>() +
                            row * packed_.table_dim
                      : d;
      AddScaled(scale, t_.d_plain.data() + i * bp_.table_stride,
                packed_.table_dim, to);
    }
    if (add) {
      // Several spans of keys, so that d_q is float32.
      void* sum = kernels::RowOf(*args_.d_q, t_.b, t_.h, source);
      AddScaled(1.0F, d, s.head_dim, static_cast<float*>(sum));
    } else {
      kernels::StoreRow(*args_.d_q, t_.b, t_.h, source, d, s.head_dim);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_TASK_INL_H_

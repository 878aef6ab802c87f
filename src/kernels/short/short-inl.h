// Attention of short sequences: whole rows of scores, and nothing packed except
// the keys of a head. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_SHORT_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_SHORT_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_SHORT_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "kernels/short/few-inl.h"
#include "kernels/short/layout-inl.h"
#include "kernels/terms/bias-inl.h"
#include "kernels/terms/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

// Computes the attention of a range of blocks, each up to kRows queries of a
// head.
class Task {
 public:
  Task(const Layout& layout, const Scratch& at, float* scratch,
       const kernels::CallResult& result)
      : layout_(layout),
        call_(layout.short_call),
        s_(layout.call.sizes),
        queries_(scratch),
        rows_(scratch + at.rows),
        scores_(scratch + at.scores),
        block_out_(scratch + at.out),
        panels_(scratch + at.keys),
        copies_(scratch + at.values),
        result_(result),
        direct_out_(result.out.dtype() == DType::kF32 &&
                    s_.value_dim % kLanesI == 0 &&
                    call_.out_angles.cos == nullptr) {}

  // Runs blocks [first, end), numbered by sequence, head and queries.
  void Run(int64_t first, int64_t end) noexcept {
    int64_t i = 0, b = 0, kv = 0;
    h_ = 0;
    if (first > 0) {
      const int64_t head = first / layout_.blocks;
      i = (first - head * layout_.blocks) * layout_.block_rows;
      b = head / s_.q_heads;
      h_ = head - b * s_.q_heads;
      kv = h_ / layout_.group;
    }
    SetKeys(b, kv);
    for (;;) {
      Block(i, std::min(layout_.block_rows, s_.q_len - i));
      if (++first == end) return;
      i += layout_.block_rows;
      if (i < s_.q_len) continue;
      i = 0;
      if (++h_ == s_.q_heads) {
        h_ = 0;
        ++b;
      }
      if (b != b_) {
        SetKeys(b, 0);
      } else if (h_ == (kv_ + 1) * layout_.group) {
        SetKeys(b, kv_ + 1);
      } else if (layout_.keys_by_head) {
        SetKeys(b, kv_);
      }
    }
  }

 private:
  // The row of the results, [B, Hq, Lq], for query i.
  int64_t Row(int64_t i) const { return (b_ * s_.q_heads + h_) * s_.q_len + i; }
  void SetKeys(int64_t b, int64_t kv);
  // Key j, rotated: in place, or in `scratch` [kStride].
  const float* KeyRow(int64_t j, float* scratch) const;
  void PackKeys();
  void Block(int64_t first, int64_t count);
  void FindSeen(int64_t first, int64_t count);
  void FindBias(int64_t first, int64_t count, int64_t rows);
  void LoadQueries(int64_t first, int64_t count, int64_t rows);
  void Dots(int64_t count);
  template <size_t kR>
  void Scores();
  void Softmax(int64_t first, int64_t count, float* inverse);
  void AddOperands(int64_t first, int64_t count);
  void SetHidden(int64_t first, int64_t count, float value);
  void FinishWeights(int64_t first, int64_t count, float* inverse);
  void ValuesByRow(const float* inverse, int64_t count, float* to,
                   int64_t stride) const;

  const Layout& layout_;
  const ShortCall& call_;
  const CallSizes& s_;
  float* const queries_;
  float* const rows_;
  float* const scores_;
  float* const block_out_;
  float* const panels_;
  float* const copies_;
  const kernels::CallResult& result_;
  const bool direct_out_;  // whether values are summed in the result itself

  // The current key head and its values.
  int64_t b_ = -1, kv_ = -1, h_ = -1;
  const float* values_ = nullptr;
  int64_t value_stride_ = 0;
  bool values_finite_ = true;
  // The current block.
  Interval seen_[kRows];
  Interval any_;  // the smallest interval with all keys that its rows see
  bool ragged_ = false;    // some row does not see all of it
  bool gaps_[kRows];       // whether keys between visible ones are hidden
  bool any_gaps_ = false;  // of any row
  const float* bias_rows_[kRows];  // indexed by key; zeros if there is no bias
  bool biased_ = false;            // whether there is one
  static constexpr float kZeros[kCols] = {};
};

inline const float* Task::KeyRow(int64_t j, float* scratch) const {
  if (!layout_.copied_keys) return layout_.call.k.Direct(b_, kv_, j);
  layout_.call.k.Load(b_, kv_, j, scratch);
  layout_.FinishKey(h_, call_.k_first + j, layout_.KeyAngles(kv_, j), scratch);
  std::fill(scratch + layout_.depth, scratch + layout_.padded, 0.0F);
  return scratch;
}

inline void Task::SetKeys(int64_t b, int64_t kv) {
  b_ = b;
  kv_ = kv;
  const int64_t keys = call_.Keys(b);
  if (!layout_.by_dots) PackKeys();
  values_ = s_.value_dim % kLanesI == 0 && call_.v_angles.cos == nullptr
                ? layout_.call.v.Direct(b, kv, 0)
                : nullptr;
  value_stride_ = layout_.call.v.row_stride();
  const int64_t width = AlignUp(s_.value_dim, kLanesI);
  if (values_ == nullptr) {
    for (int64_t j = 0; j < keys; ++j) {
      float* row = copies_ + j * width;
      layout_.call.v.Load(b, kv, j, row);
      layout_.RotateValue(kv, j, row);
      for (int64_t d = s_.value_dim; d < width; ++d) row[d] = 0.0F;
    }
    values_ = copies_;
    value_stride_ = width;
  }
  // 0 * inf is NaN, so zero weights of keys that a row does not see or drops
  // must not be multiplied by non-finite values.
  values_finite_ = true;
  if (!layout_.masked && !layout_.dropout) return;
  VF sum = hn::Zero(kDF);  // x * 0 is 0 if x is finite, else NaN
  for (int64_t j = 0; j < keys; ++j) {
    const float* row = values_ + j * value_stride_;
    for (int64_t d = 0; d < width; d += kLanesI) {
      sum = hn::MulAdd(hn::LoadU(kDF, row + d), hn::Zero(kDF), sum);
    }
  }
  values_finite_ = hn::GetLane(hn::SumOfLanes(kDF, sum)) == 0.0F;
}

inline void Task::PackKeys() {
  const int64_t keys = call_.Keys(b_);
  const size_t depth = static_cast<size_t>(layout_.depth);
  constexpr int64_t kHalf = kLanesI >= 8 ? kLanesI / 2 : kLanesI;
  for (int64_t j = 0; j < keys; j += kLanesI) {
    float* to = panels_ + AlignDown(j, kColsI) * layout_.depth + j % kColsI;
    const int64_t present = std::min(kLanesI, keys - j);
    const float* from = rows_;
    size_t stride = kStride;
    if (!layout_.copied_keys && (present == kLanesI || present == kHalf)) {
      from = layout_.call.k.Direct(b_, kv_, j);
      stride = static_cast<size_t>(layout_.call.k.row_stride());
    } else {
      // Rows past the last key keep stale values: no query sees them.
      for (int64_t l = 0; l < present; ++l) {
        float* row = rows_ + l * kStride;
        const float* key = KeyRow(j + l, row);
        if (key != row) CopyRow(key, layout_.depth, row);
      }
    }
    if (present <= kHalf) {
      TransposeRows<kHalf>(from, stride, depth, to);
    } else {
      TransposeRows<kLanes>(from, stride, depth, to);
    }
  }
}

HWY_INLINE void Task::LoadQueries(int64_t first, int64_t count, int64_t rows) {
  const float* from = layout_.call.q.Direct(b_, h_, first);
  const int64_t step = layout_.call.q.row_stride();
  const int64_t depth = layout_.depth, padded = layout_.padded;
  // The common case: queries that are only scaled, all by the same factor.
  const bool plain = from != nullptr && layout_.as_it_is &&
                     !layout_.call.terms.scale.rows.defined();
  for (int64_t r = 0; r < count; ++r) {
    float* to = queries_ + r * kStride;
    if (plain) {
      SetScaled(layout_.even_scale, from + r * step, depth, to);
    } else {
      layout_.call.q.Load(b_, h_, first + r, to);
      const int64_t position = call_.q_first + first + r;
      layout_.FinishQuery(h_, position, layout_.ScaleOf(h_, position),
                          layout_.QueryAngles(kv_, first + r), to, to,
                          /*plain=*/nullptr);
    }
    for (int64_t d = depth; d < padded; ++d) to[d] = 0.0F;
  }
  for (int64_t r = count; r < rows; ++r) {
    CopyRow(queries_, padded, queries_ + r * kStride);
  }
}

// Scores by dot products, for so few pairs that transposing keys does not pay.
inline void Task::Dots(int64_t count) {
  const VF lane = hn::Iota(kDF, 0.0F);
  for (int64_t j = AlignDown(any_.begin, kLanesI); j < any_.end; j += kLanesI) {
    VF sums[kRows];
    for (int64_t r = 0; r < count; ++r) sums[r] = hn::Zero(kDF);
    for (int64_t l = 0; l < std::min(kLanesI, any_.end - j); ++l) {
      const float* key = KeyRow(j + l, rows_);
      const auto here = hn::Eq(lane, hn::Set(kDF, static_cast<float>(l)));
      for (int64_t r = 0; r < count; ++r) {
        const VF dot = Dot(queries_ + r * kStride, key, layout_.padded);
        sums[r] = hn::IfThenElse(here, dot, sums[r]);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      if (biased_) {
        sums[r] = hn::Add(sums[r], hn::LoadU(kDF, bias_rows_[r] + j));
      }
      hn::StoreU(sums[r], kDF, scores_ + r * kStride + j);
    }
  }
}

template <size_t kR>
inline void Task::Scores() {
  const size_t depth = static_cast<size_t>(layout_.depth);
  for (int64_t p = AlignDown(any_.begin, kColsI); p < any_.end; p += kColsI) {
    const AddStore end{bias_rows_, biased_ ? p : 0, scores_ + p};
    const float* panel = panels_ + p * layout_.depth;
    if (any_.end - p > kLanesI) {
      Product<kR, 2>(queries_, 1, kRowStep, panel, kColsI, depth, end);
    } else {
      Product<kR, 1>(queries_, 1, kRowStep, panel, kColsI, depth, end);
    }
  }
}

// Adds the operand bias to the scores after the product.
inline HWY_NOINLINE void Task::AddOperands(int64_t first, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    layout_.operand_bias->Add(b_, h_, first + r, seen_[r],
                              scores_ + r * kStride);
  }
}

// Sets scores or weights of hidden keys between those that a row sees.
inline HWY_NOINLINE void Task::SetHidden(int64_t first, int64_t count,
                                         float value) {
  for (int64_t r = 0; r < count; ++r) {
    if (!gaps_[r]) continue;
    float* row = scores_ + r * kStride;
    call_.ForHidden(b_, h_, first + r, seen_[r],
                    [=](int64_t begin, int64_t end) {
                      std::fill(row + begin, row + end, value);
                    });
  }
}

// Computes the weights of the block's rows; inverse[r] is 1 / sum, or 0 for a
// row that sees no key.
inline void Task::Softmax(int64_t first, int64_t count, float* inverse) {
  if (layout_.call.softcap > 0.0F) {
    for (int64_t r = 0; r < count; ++r) {
      SoftCapRow(layout_.call.softcap, any_.size(),
                 scores_ + r * kStride + any_.begin);
    }
  }
  if (any_gaps_) SetHidden(first, count, kMinusInf);
  RowState states[kRows];
  if (ragged_) {
    SoftmaxRows</*kAlike=*/false>(scores_, seen_, any_, count, states);
  } else {
    SoftmaxRows</*kAlike=*/true>(scores_, seen_, any_, count, states);
  }
  if (any_gaps_) SetHidden(first, count, 0.0F);
  if (layout_.call.plan.options.sinks.defined()) {
    const double sink = layout_.call.Sink(h_);
    for (int64_t r = 0; r < count; ++r) {
      const float rescale = JoinSink(sink, states[r]);
      inverse[r] = rescale * InverseSum(states[r]);
    }
  } else {
    for (int64_t r = 0; r < count; ++r) inverse[r] = InverseSum(states[r]);
  }
  if (result_.lse == nullptr) return;
  const int64_t row = Row(first);
  for (int64_t r = 0; r < count; ++r) {
    result_.lse[row + r] = LogSumExp(states[r]);
  }
}

// Applies dropout to the weights and stores them.
inline HWY_NOINLINE void Task::FinishWeights(int64_t first, int64_t count,
                                             float* inverse) {
  for (int64_t r = 0; r < count; ++r) {
    float* p = scores_ + r * kStride;
    if (layout_.dropout) {
      layout_.dropout->Drop(b_, h_, first + r, seen_[r], p);
      inverse[r] *= layout_.dropout->gain();
    }
    if (result_.weights == nullptr) continue;
    StoreWeightRow(p, seen_[r], inverse[r], /*order=*/nullptr,
                   result_.weights + Row(first + r) * s_.k_len);
  }
}

// to = inverse[r] * (weights x values), skipping weights of 0. Otherwise
// bitwise equal to MultiplyValues.
inline HWY_NOINLINE void Task::ValuesByRow(const float* inverse, int64_t count,
                                           float* to, int64_t stride) const {
  const int64_t width = AlignUp(s_.value_dim, kLanesI);
  for (int64_t r = 0; r < count; ++r) {
    float* row = to + r * stride;
    std::fill_n(row, width, 0.0F);
    for (int64_t j = seen_[r].begin; j < seen_[r].end; ++j) {
      const float weight = scores_[r * kStride + j];
      if (weight == 0.0F) continue;
      AddScaled(weight, values_ + j * value_stride_, width, row);
    }
    SetScaled(inverse[r], row, width, row);
  }
}

// Finds the keys that the rows of a block see.
inline void Task::FindSeen(int64_t first, int64_t count) {
  ragged_ = any_gaps_ = false;
  const int64_t keys = call_.Keys(b_);
  const auto look = [&](int64_t r) {
    if (!call_.hides) return call_.VisibleOf(keys, first + r);
    const kernels::Glimpse glimpse = call_.Look(b_, h_, first + r);
    gaps_[r] = glimpse.gaps;
    any_gaps_ |= glimpse.gaps;
    return glimpse.seen;
  };
  const Interval seen = look(0);
  any_ = seen;
  for (int64_t r = 0; r < (layout_.masked ? 1 : count); ++r) seen_[r] = seen;
  if (!layout_.masked) return;
  for (int64_t r = 1; r < count; ++r) {
    const Interval other = seen_[r] = look(r);
    ragged_ |= other.begin != seen.begin || other.end != seen.end;
    any_ = Around(any_, other);
  }
}

// Finds the bias that is added to the rows of a block while their products are
// in registers.
inline void Task::FindBias(int64_t first, int64_t count, int64_t rows) {
  const float* keys =
      layout_.keys_in_product ? layout_.operand_bias->Keys(b_, h_) : nullptr;
  biased_ = call_.bias != nullptr || keys != nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    bias_rows_[r] = keys != nullptr ? keys
                    : call_.bias == nullptr
                        ? kZeros
                        : call_.BiasRow(h_, first + std::min(r, count - 1));
  }
}

inline void Task::Block(int64_t first, int64_t count) {
  FindSeen(first, count);
  const int64_t rows = KernelRows(count);
  FindBias(first, count, rows);
  LoadQueries(first, count, rows);
  if (layout_.by_dots) {
    Dots(count);
  } else {
    WithRows(rows, [&]<size_t kR>() { Scores<kR>(); });
  }
  if (layout_.operand_bias && !layout_.keys_in_product) {
    AddOperands(first, count);
  }
  float inverse[kRows];
  Softmax(first, count, inverse);
  if (layout_.dropout || result_.weights != nullptr) {
    FinishWeights(first, count, inverse);
  }
  float* to = block_out_;
  int64_t stride = kStride;
  if (direct_out_) {
    to = static_cast<float*>(kernels::RowOf(result_.out, b_, h_, first));
    stride = result_.out.strides()[2];
  }
  const bool zeros = ragged_ || any_gaps_ || layout_.dropout;  // in weights
  if (values_finite_ || !zeros) {
    WithRows(rows, [&]<size_t kR>() {
      MultiplyValues<kR>(scores_ + any_.begin, kRowStep,
                         values_ + any_.begin * value_stride_, value_stride_,
                         any_.end - any_.begin, s_.value_dim,
                         ScaleStore{inverse, count, to, stride});
    });
  } else {
    ValuesByRow(inverse, count, to, stride);
  }
  if (direct_out_) return;
  for (int64_t r = 0; r < count; ++r) {
    layout_.RotateOutput(kv_, first + r, block_out_ + r * kStride);
    kernels::StoreRow(result_.out, b_, h_, first + r, block_out_ + r * kStride,
                      s_.value_dim);
  }
}

}  // namespace short_seq

void ShortF32(const kernels::Call& whole, const kernels::CallResult& result) {
  const kernels::ShortCall call(whole);
  const int threads = whole.plan.threads;
  if (threads <= 1 && short_seq::IsFew(call)) {
    short_seq::Few(call, result);
    return;
  }
  const short_seq::Layout layout(call);
  const CallSizes& s = call.sizes;
  const int64_t heads = s.batch * s.q_heads;
  const short_seq::Scratch scratch(s, layout.depth);
  float* floats = kernels::ShortScratch(threads * scratch.end);
  result.ClearWeights(s);
  const auto run = [&](int worker, int64_t first, int64_t end) noexcept {
    short_seq::Task(layout, scratch, floats + worker * scratch.end, result)
        .Run(first, end);
  };
  if (threads <= 1) {
    run(0, 0, heads * layout.blocks);
    return;
  }
  // Whole heads if there are enough of them, since keys are transposed per
  // task.
  const int64_t piece = heads >= 2 * threads ? layout.blocks : 1;
  const int64_t pieces = heads * layout.blocks / piece;
  const int64_t tasks = std::min<int64_t>(pieces, 4 * threads);
  ParallelFor(tasks, threads, [&](int64_t n, int worker) noexcept {
    run(worker, pieces * n / tasks * piece, pieces * (n + 1) / tasks * piece);
  });
}

void AddBiasByPairF32(const kernels::ShortCall& call, int64_t heads,
                      int64_t stride, float* rows) {
  const CallSizes& s = call.sizes;
  const BiasTerm bias(*call.terms.bias, s, call.call.shape,
                      BiasTerm::Ramp::kRows);
  int64_t present = 0;  // keys of the longest sequence
  for (int64_t b = 0; b < s.batch; ++b) {
    present = std::max(present, call.Keys(b));
  }
  const kernels::Tokens keys =
      kernels::ConsecutiveTokens(call.k_first, present, call.terms);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < s.q_len; ++i, rows += stride) {
      bias.Add(h, call.q_first + i, keys, call.ReachOf(present, i), rows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_SHORT_INL_H_

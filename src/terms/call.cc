#include "terms/call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/fail.h"

namespace locus {
namespace {

// Per-token spans are [length], shared by all sequences, or [batch * length].
// Returns the stride between sequences: 0 or length.
int64_t SpanStep(const char* what, std::span<const int64_t> span, int64_t batch,
                 int64_t length) {
  const int64_t given = static_cast<int64_t>(span.size());
  if (given == 0 || given == length) return 0;
  if (given != batch * length) {
    Fail("{} must have {} (or {}) entries, got {}", what, length,
         batch * length, given);
  }
  return length;
}

void CheckPositions(const char* what, std::span<const int64_t> positions) {
  for (int64_t p : positions) {
    if (p < kLowestPosition || p > kHighestPosition) {
      Fail("{} must lie in [{}, {}], got {}", what, kLowestPosition,
           kHighestPosition, p);
    }
  }
}

std::string Sizes(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Throws Error unless the axes of an operand equal those of `want`; all but the
// last may also be 1.
void CheckOperand(const char* what, std::span<const int64_t> shape,
                  std::span<const int64_t> want) {
  bool fits = shape.size() == want.size();
  for (size_t axis = 0; fits && axis < want.size(); ++axis) {
    fits = shape[axis] == want[axis] ||
           (axis + 1 < want.size() && shape[axis] == 1);
  }
  if (!fits) {
    Fail("{} must be {}, where any axis but the last may be 1, got {}", what,
         Sizes(want), Sizes(shape));
  }
}

void CheckOperands(const CallSizes& s, const AttentionOptions& o) {
  const int64_t pairs[] = {s.batch, s.q_heads, s.q_len, s.k_len};
  if (o.mask.defined()) CheckOperand("the mask", o.mask.shape, pairs);
  if (o.pair_bias.defined()) {
    CheckOperand("pair_bias", o.pair_bias.shape(), pairs);
  }
  if (o.key_bias.defined()) {
    const int64_t keys[] = {s.batch, s.q_heads, s.k_len};
    CheckOperand("key_bias", o.key_bias.shape(), keys);
  }
  if (o.table_queries.defined() &&
      (o.table_queries.rank() != 4 || o.table_queries.size(0) != s.batch ||
       o.table_queries.size(1) != s.q_heads ||
       o.table_queries.size(2) != s.q_len)) {
    Fail("table_queries must be [{}, {}, {}, width], got {}", s.batch,
         s.q_heads, s.q_len, o.table_queries.Describe());
  }
  if (o.sinks.defined()) {
    if (o.sinks.rank() != 1 || o.sinks.size(0) != s.q_heads) {
      Fail("sinks must have one logit for each of {} heads, got {}", s.q_heads,
           o.sinks.Describe());
    }
    for (int64_t h = 0; h < s.q_heads; ++h) {
      if (!(o.sinks.At(h) < std::numeric_limits<double>::infinity())) {
        Fail("a sink must be below infinity, got {} for head {}", o.sinks.At(h),
             h);
      }
    }
  }
  if (!(o.dropout.rate >= 0.0 && o.dropout.rate < 1.0)) {
    Fail("dropout must lie in [0, 1), got {}", o.dropout.rate);
  }
  if (o.dropout.query_stride < 1 || o.dropout.key_stride < 1) {
    Fail("dropout numbers tokens by strides of at least 1, got {} and {}",
         o.dropout.query_stride, o.dropout.key_stride);
  }
}

void CheckOptions(const CallSizes& s, const AttentionOptions& o) {
  if (o.scale && !std::isfinite(*o.scale)) {
    Fail("scale must be finite, got {}", *o.scale);
  }
  // The kernels divide and multiply by the cap in float32.
  constexpr double kLargestCap = 1e18;
  if (o.softcap &&
      !(*o.softcap >= 1 / kLargestCap && *o.softcap <= kLargestCap)) {
    Fail("softcap must lie in [{:g}, {:g}] or be left out, got {}",
         1 / kLargestCap, kLargestCap, *o.softcap);
  }
  if (o.window && (o.window->left < 0 || o.window->right < 0)) {
    Fail("a window reaches {} back and {} ahead: neither may be negative",
         o.window->left, o.window->right);
  }
  if (o.chunk && *o.chunk < 1) {
    Fail("a chunk must have at least 1 position, got {}", *o.chunk);
  }
  SpanStep("q_positions", o.q_positions, s.batch, s.q_len);
  SpanStep("k_positions", o.k_positions, s.batch, s.k_len);
  SpanStep("q_segments", o.q_segments, s.batch, s.q_len);
  SpanStep("k_segments", o.k_segments, s.batch, s.k_len);
  CheckPositions("q_positions", o.q_positions);
  CheckPositions("k_positions", o.k_positions);
  if (o.q_segments.empty() != o.k_segments.empty() && s.q_len > 0 &&
      s.k_len > 0) {
    Fail("q_segments and k_segments must be given together");
  }
  if (!o.key_lengths.empty()) {
    if (static_cast<int64_t>(o.key_lengths.size()) != s.batch) {
      Fail("key_lengths must have {} entries, got {}", s.batch,
           o.key_lengths.size());
    }
    for (int64_t n : o.key_lengths) {
      if (n < 0 || n > s.k_len) {
        Fail("a key length must lie in [0, {}], got {}", s.k_len, n);
      }
    }
  }
  if (!o.prefix_lengths.empty()) {
    if (static_cast<int64_t>(o.prefix_lengths.size()) != s.batch) {
      Fail("prefix_lengths must have {} entries, got {}", s.batch,
           o.prefix_lengths.size());
    }
    for (int64_t n : o.prefix_lengths) {
      if (n < 0 || n > s.k_len) {
        Fail("a prefix must be of 0 to {} keys, got {}", s.k_len, n);
      }
    }
  }
  CheckOperands(s, o);
}

// The range of a set of positions or offsets; empty if lo > hi.
struct Range {
  bool empty() const { return lo > hi; }
  void Add(int64_t x) {
    rising = rising && x > hi;
    lo = std::min(lo, x);
    hi = std::max(hi, x);
  }
  void Add(const Range& r) {
    rising = rising && r.rising;
    lo = std::min(lo, r.lo);
    hi = std::max(hi, r.hi);
  }
  // The range of m - n for m in `q` and n in `k`.
  static Range Offsets(const Range& q, const Range& k) {
    if (q.empty() || k.empty()) return {};
    return {.lo = q.lo - k.hi, .hi = q.hi - k.lo};
  }

  int64_t lo = std::numeric_limits<int64_t>::max();
  int64_t hi = -std::numeric_limits<int64_t>::max();
  bool rising = true;  // added in increasing order
};

// The positions of each segment among `count` tokens.
using RangeBySegment = std::map<int64_t, Range>;
RangeBySegment RangesOf(int64_t count, const auto& segment,
                        const auto& position) {
  RangeBySegment ranges;
  auto at = ranges.end();
  for (int64_t i = 0; i < count; ++i) {
    // Tokens of a segment are mostly adjacent, which saves the lookup.
    const int64_t now = segment(i);
    if (at == ranges.end() || at->first != now) {
      at = ranges.try_emplace(now).first;
    }
    at->second.Add(position(i));
  }
  return ranges;
}

}  // namespace

CallSizes CheckCall(const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options) {
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    Fail("q, k and v must be [batch, heads, length, dim], got {}, {} and {}",
         q.Describe(), k.Describe(), v.Describe());
  }
  const CallSizes s{.batch = q.size(0),
                    .q_heads = q.size(1),
                    .kv_heads = k.size(1),
                    .q_len = q.size(2),
                    .k_len = k.size(2),
                    .head_dim = q.size(3),
                    .value_dim = v.size(3)};
  if (k.size(0) != s.batch || v.size(0) != s.batch || v.size(1) != s.kv_heads ||
      v.size(2) != s.k_len || k.size(3) != s.head_dim) {
    Fail("q {}, k {} and v {} do not match", q.Describe(), k.Describe(),
         v.Describe());
  }
  if (s.q_heads < 1 || s.kv_heads < 1 || s.q_heads % s.kv_heads != 0) {
    Fail("{} query heads cannot share {} key heads", s.q_heads, s.kv_heads);
  }
  if (s.head_dim < 1 || s.value_dim < 1) {
    Fail("head dims must be positive, got {} and {}", s.head_dim, s.value_dim);
  }
  CheckOptions(s, options);
  return s;
}

void CheckScale(const Terms& terms, const AttentionOptions& options) {
  if (options.scale && *options.scale != terms.scale.scale) {
    Fail(
        "the terms carry scale {}, but the options ask for {}: set the scale "
        "of "
        "the terms",
        terms.scale.scale, *options.scale);
  }
}

void CheckTableQueries(const Terms& terms, const AttentionOptions& options) {
  if (options.table_queries.defined() && !terms.q_table) {
    Fail("table_queries {} need a query table, but the terms have none",
         options.table_queries.Describe());
  }
}

void CheckBackward(const CallSizes& s, const AttentionOptions& options,
                   const BackwardOptions& backward) {
  if (backward.d_lse.defined() &&
      backward.d_lse.shape() !=
          std::vector<int64_t>{s.batch, s.q_heads, s.q_len}) {
    Fail("d_lse must be [{}, {}, {}], got {}", s.batch, s.q_heads, s.q_len,
         backward.d_lse.Describe());
  }
  if (backward.pair_bias && !options.pair_bias.defined()) {
    Fail("the gradient of the pair bias was requested, but there is none");
  }
}

OperandGrads ZeroOperandGrads(const AttentionOptions& options,
                              const BackwardOptions& backward) {
  const auto like = [](const Tensor& t) {
    return t.defined() ? Tensor::Zeros(DType::kF64, t.shape()) : Tensor();
  };
  return {.key_bias = like(options.key_bias),
          .pair_bias = backward.pair_bias ? like(options.pair_bias) : Tensor(),
          .sinks = like(options.sinks),
          .table_queries = like(options.table_queries)};
}

CallMask::CallMask(const CallSizes& s, const AttentionOptions& o)
    : q_pos_(o.q_positions),
      k_pos_(o.k_positions),
      key_lengths_(o.key_lengths),
      q_seg_(o.q_segments),
      k_seg_(o.k_segments),
      prefix_lengths_(o.prefix_lengths),
      q_len_(s.q_len),
      k_len_(s.k_len),
      q_step_(SpanStep("q_positions", q_pos_, s.batch, s.q_len)),
      k_step_(SpanStep("k_positions", k_pos_, s.batch, s.k_len)),
      q_seg_step_(SpanStep("q_segments", q_seg_, s.batch, s.q_len)),
      k_seg_step_(SpanStep("k_segments", k_seg_, s.batch, s.k_len)),
      causal_(o.causal),
      by_index_(o.by_index && !(q_pos_.empty() && k_pos_.empty())),
      window_(o.window),
      chunk_(o.chunk),
      pairs_(o.mask) {}

PlaceRange CallMask::Chunk(int64_t m) const {
  if (!chunk_) return {};
  // Floor division, also for negative places.
  const int64_t number = m >= 0 ? m / *chunk_ : -((-m + *chunk_ - 1) / *chunk_);
  const int64_t first = number * *chunk_;
  return {.first = first, .last = first + (*chunk_ - 1)};
}

bool CallMask::Visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (j >= Keys(b)) return false;
  if (!q_seg_.empty() && q_seg_[static_cast<size_t>(b * q_seg_step_ + i)] !=
                             k_seg_[static_cast<size_t>(b * k_seg_step_ + j)]) {
    return false;
  }
  if (pairs_.defined() && *pairs_.At(b, h, i, j) == 0) return false;
  if (j < Prefix(b)) return true;
  const int64_t m = QPlace(b, i), n = KPlace(b, j);
  if (m - n > Behind() || n - m > Ahead()) return false;
  const PlaceRange chunk = Chunk(m);
  return n >= chunk.first && n <= chunk.last;
}

Shape CallMask::ShapeOf(const CallSizes& s, const AttentionOptions& o) const {
  Range all_q, all_k, offsets;
  bool rising = true;
  // An empty batch has the positions of a batch of one.
  for (int64_t b = 0; b < std::max<int64_t>(s.batch, 1); ++b) {
    const int64_t keys = Keys(b);
    Range q, k;
    // Default positions increase, so the first and the last suffice.
    const int64_t q_by = q_pos_.empty() ? std::max<int64_t>(s.q_len - 1, 1) : 1;
    for (int64_t i = 0; i < s.q_len; i += q_by) q.Add(QPos(b, i));
    const int64_t k_by = k_pos_.empty() ? std::max<int64_t>(keys - 1, 1) : 1;
    for (int64_t j = 0; j < keys; j += k_by) k.Add(KPos(b, j));
    all_q.Add(q);
    all_k.Add(k);
    if (q_seg_.empty()) {
      rising = rising && q.rising && k.rising;
      offsets.Add(Range::Offsets(q, k));
    } else {
      // Only pairs within a segment are visible.
      const RangeBySegment queries = RangesOf(
          s.q_len,
          [&](int64_t i) {
            return q_seg_[static_cast<size_t>(b * q_seg_step_ + i)];
          },
          [&](int64_t i) { return QPos(b, i); });
      const RangeBySegment present = RangesOf(
          keys,
          [&](int64_t j) {
            return k_seg_[static_cast<size_t>(b * k_seg_step_ + j)];
          },
          [&](int64_t j) { return KPos(b, j); });
      for (const auto* ranges : {&queries, &present}) {
        for (const auto& [segment, range] : *ranges) {
          rising = rising && range.rising;
        }
      }
      for (const auto& [segment, range] : queries) {
        const auto other = present.find(segment);
        if (other == present.end()) continue;
        offsets.Add(Range::Offsets(range, other->second));
      }
    }
    if (q_step_ == 0 && k_step_ == 0 && q_seg_step_ == 0 && k_seg_step_ == 0 &&
        key_lengths_.empty()) {
      break;  // all sequences are alike
    }
  }
  // Without tokens any position will do, preferably one that was given.
  if (all_k.empty() && all_q.empty() && s.k_len > 0) all_k.Add(KPos(0, 0));
  if (all_q.empty()) all_q.Add(all_k.empty() ? 0 : all_k.lo);
  if (all_k.empty()) all_k.Add(all_q.lo);
  // A prefix is visible at any offset.
  const bool clipped = !by_index_ && prefix_lengths_.empty();
  if (clipped) {
    offsets.lo = std::max(offsets.lo, -Ahead());
    offsets.hi = std::min(offsets.hi, Behind());
    if (chunk_) {
      offsets.lo = std::max(offsets.lo, 1 - *chunk_);
      offsets.hi = std::min(offsets.hi, *chunk_ - 1);
    }
  }
  // No pair is visible: any one offset will do.
  if (offsets.empty()) offsets = {.lo = 0, .hi = 0};
  return {.q_heads = s.q_heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .value_dim = s.value_dim,
          .scale = o.scale,
          .min_q_pos = all_q.lo,
          .max_q_pos = all_q.hi,
          .min_k_pos = all_k.lo,
          .max_k_pos = all_k.hi,
          .min_offset = offsets.lo,
          .max_offset = offsets.hi,
          .table_dim =
              o.table_queries.defined() ? o.table_queries.size(3) : s.head_dim,
          .causal = causal_ && !by_index_,
          .windowed = (window_ || chunk_) && !by_index_,
          .by_index = by_index_,
          .rising = rising};
}

Shape CallShape(const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionOptions& options) {
  const CallSizes sizes = CheckCall(q, k, v, options);
  return CallMask(sizes, options).ShapeOf(sizes, options);
}

PackedTokens Pack(std::span<const int64_t> lengths) {
  PackedTokens tokens;
  int64_t segment = 0;
  for (int64_t length : lengths) {
    if (length < 0)
      Fail("a packed length must not be negative, got {}", length);
    for (int64_t i = 0; i < length; ++i) {
      tokens.positions.push_back(i);
      tokens.segments.push_back(segment);
    }
    ++segment;
  }
  return tokens;
}

}  // namespace locus

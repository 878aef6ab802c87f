// Which calls are short, and what their kernel reads beside q, k and v.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/buffer.h"
#include "kernels/decode/decode.h"
#include "kernels/rotary/angles.h"
#include "kernels/short/short.h"

namespace locus::kernels {
namespace {

constexpr double kLog2E = 1.4426950408889634;

// No vector has more lanes.
constexpr int64_t kLanes = 16;
constexpr int64_t WholeVectors(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// Biases by pair take at most 4 MiB.
constexpr int64_t kMostPairs = int64_t{1} << 20;

// Positions of one side: none given, or the same rising ones for all sequences.
bool Consecutive(std::span<const int64_t> positions, int64_t length) {
  int64_t i = 0;
  for (int64_t position : positions) {
    if (position != positions[0] + i) return false;
    if (++i == length) i = 0;
  }
  return true;
}

// If nothing is said, queries end where the keys of their sequence end.
int64_t FirstQuery(const CallSizes& s, const AttentionOptions& o,
                   size_t b = 0) {
  if (!o.q_positions.empty()) return o.q_positions[0];
  const int64_t keys = o.key_lengths.empty() ? s.k_len : o.key_lengths[b];
  return std::max<int64_t>(keys - s.q_len, 0);
}
bool QueriesBeginAlike(const CallSizes& s, const AttentionOptions& o) {
  for (size_t b = 1; b < o.key_lengths.size(); ++b) {
    if (FirstQuery(s, o, b) != FirstQuery(s, o)) return false;
  }
  return true;
}
int64_t FirstKey(const AttentionOptions& o) {
  return o.k_positions.empty() ? 0 : o.k_positions[0];
}

bool ByOffsetAlone(const Bias& bias) {
  if (std::holds_alternative<BiasProfile>(bias)) return false;
  const auto* table = std::get_if<BiasTable>(&bias);
  return table == nullptr || (!table->buckets.grid && !table->buckets.special);
}

// Whether two rotations have the same cosines and sines, decays aside.
bool SameAngles(const Rotation& a, const Rotation& b) {
  const auto same_axis = [](const Axis& x, const Axis& y) {
    return x.divisor == y.divisor && x.modulus == y.modulus;
  };
  return a.theta == b.theta && a.gain == b.gain && a.angles == b.angles &&
         a.axis == b.axis && a.packed_from == b.packed_from &&
         std::ranges::equal(a.axes, b.axes, same_axis);
}

RotationTable AnglesOf(const Rotation& rotation, int64_t first, int64_t count,
                       double sign, int64_t origin) {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return RotationTable(rotation, positions, sign, origin);
}

// bucket[e] of the offset first - e, kept within [low, high], for e < width.
void FindBuckets(const BucketMap& map, int64_t width, int64_t first,
                 int64_t low, int64_t high, int32_t* bucket) {
  // Stretches of one piece, from the last piece down: offsets fall.
  size_t at = map.pieces.size() - 1;
  for (int64_t e = 0; e < width;) {
    const int64_t offset = std::clamp(first - e, low, high);
    while (at > 0 && map.pieces[at].start > offset) --at;
    const BucketMap::Piece& piece = map.pieces[at];
    int32_t here = piece.first_bucket;
    if (piece.step != 0) {
      here += piece.step * static_cast<int32_t>(offset - piece.start);
    }
    // Beyond either end the bucket stays the same.
    int32_t step = 0;
    int64_t end = width;
    if (first - e > high) {
      end = first - high;
    } else if (offset > low) {
      step = piece.step;
      end = first - std::max(piece.start, low + 1) + 1;
    }
    end = std::clamp(end, e + 1, width);
    for (; e < end; ++e, here -= step) bucket[e] = here;
  }
}

// rows[h * stride + e] = log2(e) * values[h, bucket[e]] for e < width.
template <typename T>
void LayOutValues(const Tensor& values, const int32_t* bucket, int64_t width,
                  int64_t stride, float* rows) {
  const int64_t step = values.strides()[1];
  for (int64_t h = 0; h < values.size(0); ++h, rows += stride) {
    const T* from = values.Data<T>() + h * values.strides()[0];
    for (int64_t e = 0; e < width; ++e) {
      rows[e] = static_cast<float>(kLog2E * from[bucket[e] * step]);
    }
  }
}

void LayOutTable(const Tensor& values, const int32_t* bucket, int64_t width,
                 int64_t stride, float* rows) {
  if (values.dtype() == DType::kF32) {
    LayOutValues<float>(values, bucket, width, stride, rows);
  } else if (values.dtype() == DType::kF64) {
    LayOutValues<double>(values, bucket, width, stride, rows);
  } else {
    LayOutValues<double>(values.To(DType::kF64), bucket, width, stride, rows);
  }
}

// What a thread keeps for its calls. The cosines of the last rotation stay:
// layers of a model share them, and they cost more than the call.
struct Kept {
  FloatBuffer bias;
  Rotation rotation;  // without its decays
  int64_t first = 0, count = 0;
  RotationTable angles;            // of positions first, first + 1 ...
  RotationTable q_table, k_table;  // of a rotation with decays
};

Kept& Mine() {
  static thread_local Kept kept;
  return kept;
}

}  // namespace

bool IsShort(const CallSizes& s, const Terms& terms,
             const AttentionOptions& o) {
  if (s.q_len < 1 || s.q_len > kShortTokens || s.k_len < 1 ||
      s.k_len > kShortTokens || s.batch < 1 || s.head_dim > kShortChannels ||
      s.value_dim > kShortChannels) {
    return false;
  }
  if (terms.q_table || terms.k_table || terms.v_table) return false;
  // So few queries over so many keys are rather decoded: a transpose does not
  // pay for them, nor do rows of one head fill the registers. Measured at 1 to
  // 16 queries, 8 to 256 keys, 64 and 128 channels, 1 to 16 heads a group.
  if (s.k_len * s.head_dim >= 4096 * std::max<int64_t>(s.q_len, 2) &&
      FewRows(s, terms)) {
    return false;
  }
  if (terms.extra_dot) {
    const Tensor& rows = terms.extra_dot->q_rows;  // not checked yet
    if (rows.rank() != 3 || s.head_dim + rows.size(2) > kShortChannels) {
      return false;
    }
  }
  if (terms.bias && !ByOffsetAlone(*terms.bias) &&
      s.q_heads * s.q_len * WholeVectors(s.k_len) > kMostPairs) {
    return false;
  }
  if (!o.q_segments.empty() || !Consecutive(o.q_positions, s.q_len) ||
      !Consecutive(o.k_positions, s.k_len) || !QueriesBeginAlike(s, o) ||
      (o.by_index && !(o.q_positions.empty() && o.k_positions.empty()))) {
    return false;
  }
  // One table of cosines serves both sides.
  return !terms.rotate ||
         std::abs(FirstQuery(s, o) - FirstKey(o)) <= kShortTokens;
}

ShortCall::ShortCall(const CallSizes& call_sizes, const Tensor& q_tensor,
                     const Tensor& k_tensor, const Tensor& v_tensor,
                     const Terms& call_terms, const AttentionOptions& o)
    : sizes(call_sizes),
      terms(call_terms),
      q(q_tensor),
      k(k_tensor),
      v(v_tensor),
      softcap(static_cast<float>(o.softcap.value_or(0.0))),
      key_lengths(o.key_lengths),
      q_first(FirstQuery(sizes, o)),
      k_first(FirstKey(o)),
      behind(BucketMap::kHighest),
      ahead(BucketMap::kHighest) {
  if (o.window) {
    behind = std::min(behind, o.window->left);
    ahead = std::min(ahead, o.window->right);
  }
  if (o.causal) ahead = 0;
  FindShape(o);
  Validate(terms, shape);
  if (terms.bias) ByOffsetAlone(*terms.bias) ? LayOutByRel() : LayOutByPair();
  if (terms.rotate) FindAngles();
}

// What CallMask::ShapeOf finds, where positions count up by one.
void ShortCall::FindShape(const AttentionOptions& o) {
  const int64_t keys =
      key_lengths.empty() ? sizes.k_len : std::ranges::max(key_lengths);
  const int64_t q_last = q_first + sizes.q_len - 1;
  const int64_t k_last = k_first + keys - 1;
  shape = {.q_heads = sizes.q_heads,
           .kv_heads = sizes.kv_heads,
           .head_dim = sizes.head_dim,
           .scale = o.scale,
           .min_q_pos = q_first,
           .max_q_pos = q_last,
           .min_k_pos = keys == 0 ? q_first : k_first,
           .max_k_pos = keys == 0 ? q_first : k_last,
           .causal = o.causal,
           .windowed = o.window.has_value()};
  const int64_t low = std::max(q_first - k_last, -ahead);
  const int64_t high = std::min(q_last - k_first, behind);
  if (keys == 0 || low > high) return;  // no pair is visible
  shape.min_offset = low;
  shape.max_offset = high;
}

// A row a head, from the rel of the last query and the first key to that of the
// first query and the last key, and zeros up to whole vectors. Offsets that no
// pair has take the value of the nearest that one has.
void ShortCall::LayOutByRel() {
  const int64_t width = sizes.q_len - 1 + sizes.k_len;
  const int64_t stride = sizes.q_len - 1 + WholeVectors(sizes.k_len);
  // Offsets fall along the row.
  const int64_t last_offset = q_first + sizes.q_len - 1 - k_first;
  const auto* table = std::get_if<BiasTable>(&*terms.bias);
  const auto* ramp = std::get_if<BiasRamp>(&*terms.bias);
  const int64_t heads = table != nullptr
                            ? table->values.size(0)
                            : static_cast<int64_t>(ramp->past.size());
  FloatBuffer& rows = Mine().bias;
  rows.Resize(heads * stride);
  bias = rows.data() + sizes.q_len - 1;
  bias_head = heads == 1 ? 0 : stride;
  bias_row = -1;
  for (int64_t h = 0; h < heads && width < stride; ++h) {
    std::fill_n(rows.data() + h * stride + width, stride - width, 0.0F);
  }
  if (table != nullptr) {
    int32_t buckets[2 * kShortTokens];
    FindBuckets(table->buckets, width, last_offset, shape.min_offset,
                shape.max_offset, buckets);
    LayOutTable(table->values, buckets, width, stride, rows.data());
    return;
  }
  for (int64_t h = 0; h < heads; ++h) {
    float* row = rows.data() + h * stride;
    const double past = -ramp->past[static_cast<size_t>(h)] * kLog2E;
    const double future = ramp->future[static_cast<size_t>(h)] * kLog2E;
    for (int64_t e = 0; e < width; ++e) {
      const auto offset = static_cast<double>(
          std::clamp(last_offset - e, shape.min_offset, shape.max_offset));
      row[e] = static_cast<float>(offset * (offset > 0.0 ? past : future));
    }
  }
}

// A row a head and query. Pairs that are masked may have no bias: they take
// any.
void ShortCall::LayOutByPair() {
  const int64_t width = WholeVectors(sizes.k_len);
  const int64_t pairs = sizes.q_len * width;
  const auto* table = std::get_if<BiasTable>(&*terms.bias);
  const auto* profile = std::get_if<BiasProfile>(&*terms.bias);
  const int64_t heads =
      table != nullptr ? table->values.size(0) : profile->base.size(0);
  FloatBuffer& rows = Mine().bias;
  rows.Resize(heads * pairs);
  bias = rows.data();
  bias_head = heads == 1 ? 0 : pairs;
  bias_row = width;
  const auto for_pairs = [&](const auto& pair) {
    for (int64_t i = 0; i < sizes.q_len; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        pair(i * width + j, q_first + i,
             k_first + std::min(j, sizes.k_len - 1));
      }
    }
  };
  if (table != nullptr) {
    std::vector<int32_t> buckets(static_cast<size_t>(pairs));
    for_pairs([&](int64_t at, int64_t m, int64_t n) {
      buckets[static_cast<size_t>(at)] =
          std::clamp(table->buckets(m, n), 0, table->buckets.count - 1);
    });
    LayOutTable(table->values, buckets.data(), pairs, pairs, rows.data());
    return;
  }
  const auto farthest = static_cast<int64_t>(profile->distance.size()) - 1;
  const double* base = profile->base.Data<double>();
  const double* slope = profile->slope.Data<double>();
  const auto segments = static_cast<size_t>(profile->base.size(1));
  for_pairs([&](int64_t at, int64_t m, int64_t n) {
    const int64_t distance = std::min(std::abs(m - n), farthest);
    const double x =
        profile->distance[static_cast<size_t>(distance)] *
        profile->row_gain[static_cast<size_t>(m - profile->first_position)];
    const size_t segment = profile->Segment(x);
    for (int64_t h = 0; h < heads; ++h) {
      const size_t s = static_cast<size_t>(h) * segments + segment;
      rows.data()[h * pairs + at] =
          static_cast<float>(kLog2E * (base[s] + slope[s] * x));
    }
  });
}

void ShortCall::FindAngles() {
  const Rotation& rotation = *terms.rotate;
  Kept& kept = Mine();
  if (!rotation.log_decay.empty()) {
    const int64_t origin = DecayOrigin(rotation, shape);
    kept.q_table = AnglesOf(rotation, q_first, sizes.q_len, 1.0, origin);
    kept.k_table = AnglesOf(rotation, k_first, sizes.k_len, -1.0, origin);
    q_cos = kept.q_table.cos.data();
    q_sin = kept.q_table.sin.data();
    k_cos = kept.k_table.cos.data();
    k_sin = kept.k_table.sin.data();
    return;
  }
  const int64_t first = std::min(q_first, k_first);
  const int64_t end = std::max(q_first + sizes.q_len, k_first + sizes.k_len);
  if (first < kept.first || end > kept.first + kept.count ||
      !SameAngles(rotation, kept.rotation)) {
    kept.count = 0;  // in case of an exception
    kept.rotation = rotation;
    kept.angles = AnglesOf(rotation, first, end - first, 1.0, 0);
    kept.first = first;
    kept.count = end - first;
  }
  const int64_t pairs = rotation.NumPairs();
  q_cos = kept.angles.cos.data() + (q_first - kept.first) * pairs;
  q_sin = kept.angles.sin.data() + (q_first - kept.first) * pairs;
  k_cos = kept.angles.cos.data() + (k_first - kept.first) * pairs;
  k_sin = kept.angles.sin.data() + (k_first - kept.first) * pairs;
}

}  // namespace locus::kernels

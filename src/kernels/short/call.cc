#include "kernels/short/call.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "core/buffer.h"
#include "kernels/decode/decode.h"
#include "kernels/rotary/angles.h"
#include "kernels/short/short.h"
#include "kernels/terms/offset_map.h"

namespace locus::kernels {
namespace {

// No vector has more lanes.
constexpr int64_t kLanes = 16;
constexpr int64_t WholeVectors(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// Positions of one side: none given, or the same rising ones for all sequences.
bool Consecutive(std::span<const int64_t> positions, int64_t length) {
  int64_t i = 0;
  for (int64_t position : positions) {
    if (position != positions[0] + i) return false;
    if (++i == length) i = 0;
  }
  return true;
}

// Whether positions count up by one on both sides, and alike in all sequences.
bool Consecutive(const Plan& plan) {
  const AttentionOptions& o = plan.options;
  if (!Consecutive(o.q_positions, plan.sizes.q_len) ||
      !Consecutive(o.k_positions, plan.sizes.k_len)) {
    return false;
  }
  // If nothing is said, queries end where the keys of their sequence end.
  for (int64_t b = 1; b < static_cast<int64_t>(o.key_lengths.size()); ++b) {
    if (plan.mask.QPos(b, 0) != plan.mask.QPos(0, 0)) return false;
  }
  return true;
}

bool ByOffsetAlone(const Bias& bias) {
  if (std::holds_alternative<BiasProfile>(bias)) return false;
  const auto* table = std::get_if<BiasTable>(&bias);
  return table == nullptr || !ByPair(table->buckets);
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

// What a thread keeps for its calls. The cosines of the last rotation stay:
// layers of a model share them, and they cost more than the call.
struct ThreadCache {
  static ThreadCache& Get() {
    static thread_local ThreadCache cache;
    return cache;
  }

  FloatBuffer bias;
  Rotation rotation;  // without its decays
  int64_t first = 0, count = 0;
  RotationTable angles;            // of positions first, first + 1 ...
  RotationTable q_table, k_table;  // of a rotation with decays
};

}  // namespace

const char* ShortRefuses(const Plan& plan) {
  const CallSizes& s = plan.sizes;
  const Terms& terms = plan.terms;
  if (s.q_len < 1 || s.k_len < 1 || s.batch < 1) return "it is empty";
  if (s.q_len > kShortTokens || s.k_len > kShortTokens) {
    return "more than 256 tokens";
  }
  if (s.head_dim > kShortChannels || s.value_dim > kShortChannels) {
    return "heads wider than 256 channels";
  }
  if (plan.request.keys_rotated) return "keys are rotated already";
  if (terms.q_table || terms.k_table || terms.v_table) {
    return "it has a table of vectors";
  }
  // So few queries over so many keys are rather decoded: a transpose does not
  // pay for them, nor do rows of one head fill the registers. Measured at 1 to
  // 16 queries, 8 to 256 keys, 64 and 128 channels, 1 to 16 heads per group.
  if (s.k_len * s.head_dim >= 4096 * std::max<int64_t>(s.q_len, 2) &&
      DecodeRefuses(plan) == nullptr) {
    return "few queries over many keys";
  }
  if (terms.extra_dot &&
      s.head_dim + terms.extra_dot->q_rows.size(2) > kShortChannels) {
    return "heads wider than 256 channels";
  }
  // Biases by pair take at most 4 MiB.
  constexpr int64_t kMostPairs = int64_t{1} << 20;
  if (terms.bias && !ByOffsetAlone(*terms.bias) &&
      s.q_heads * s.q_len * WholeVectors(s.k_len) > kMostPairs) {
    return "a bias by pair of more than a million pairs";
  }
  if (!plan.options.q_segments.empty()) return "it has segments";
  if (!Consecutive(plan) || plan.mask.ByIndex()) {
    return "positions do not count up by one, alike in all sequences";
  }
  // One table of cosines serves both sides.
  if (terms.rotate &&
      std::abs(plan.mask.QPos(0, 0) - plan.mask.KPos(0, 0)) > kShortTokens) {
    return "queries lie far from keys";
  }
  return nullptr;
}

ShortCall::ShortCall(const Call& c)
    : call(c),
      sizes(c.sizes),
      terms(c.terms),
      q_first(c.plan.mask.QPos(0, 0)),
      k_first(c.plan.mask.KPos(0, 0)),
      behind(BucketMap::kHighest),
      ahead(BucketMap::kHighest) {
  const AttentionOptions& o = call.plan.options;
  if (o.window) {
    behind = std::min(behind, o.window->left);
    ahead = std::min(ahead, o.window->right);
  }
  if (o.causal) ahead = 0;
  if (terms.bias) LayOutBias();
  if (terms.rotate) FindAngles();
}

void ShortCall::LayOutBias() {
  FloatBuffer& rows = ThreadCache::Get().bias;
  const int64_t heads = BiasHeads(*terms.bias);
  const int64_t width = WholeVectors(sizes.k_len);
  if (ByOffsetAlone(*terms.bias)) {
    // One row per head, from the offset of the last query and the first key to
    // that of the first query and the last key, and on to whole vectors.
    // Offsets that no pair has take the value of the nearest that one has.
    const int64_t stride = sizes.q_len - 1 + width;
    rows.Resize(heads * stride);
    FillBiasRows(*terms.bias, q_first + sizes.q_len - 1 - k_first,
                 call.shape.min_offset, call.shape.max_offset, stride, stride,
                 rows.data());
    bias = rows.data() + sizes.q_len - 1;
    bias_head = heads == 1 ? 0 : stride;
    bias_row = -1;
    return;
  }
  const int64_t pairs = sizes.q_len * width;
  // Whole vectors are read from any key on, also at the end of the last row.
  rows.Resize(heads * pairs + kLanes);
  std::fill_n(rows.data(), heads * pairs + kLanes, 0.0F);
  AddBiasByPair(*this, heads, width, rows.data());
  bias = rows.data();
  bias_head = heads == 1 ? 0 : pairs;
  bias_row = width;
}

void ShortCall::FindAngles() {
  const Rotation& rotation = *terms.rotate;
  ThreadCache& kept = ThreadCache::Get();
  if (!rotation.log_decay.empty()) {
    const int64_t origin = DecayOrigin(rotation, call.shape);
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

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

// The widest vectors have 16 lanes.
constexpr int64_t kLanes = 16;
constexpr int64_t WholeVectors(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// Whether positions are absent, or consecutive and the same for all sequences.
// `length` tokens per sequence.
bool Consecutive(std::span<const int64_t> positions, int64_t length) {
  int64_t i = 0;
  for (int64_t position : positions) {
    if (position != positions[0] + i) return false;
    if (++i == length) i = 0;
  }
  return true;
}

// Whether positions of queries and keys are consecutive and the same in all
// sequences.
bool Consecutive(const Plan& plan) {
  const AttentionOptions& o = plan.options;
  if (!Consecutive(o.q_positions, plan.sizes.q_len) ||
      !Consecutive(o.k_positions, plan.sizes.k_len)) {
    return false;
  }
  // By default, queries end where the keys of their sequence end.
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

RotationTable AnglesOf(const Rotation& rotation, int64_t first, int64_t count,
                       double sign, int64_t origin) {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return RotationTable(rotation, positions, sign, origin);
}

// Cosines and sines of the last rotation, which the layers of a model share:
// computing them takes longer than the call.
class CachedAngles {
 public:
  // Computes angles for positions [first, end) of a rotation without decays,
  // unless they are cached.
  void Hold(const Rotation& rotation, int64_t first, int64_t end) {
    if (first >= first_ && end <= first_ + count_ &&
        SameAngles(rotation, rotation_)) {
      return;
    }
    count_ = 0;  // invalid in case of an exception
    rotation_ = rotation;
    table_ = AnglesOf(rotation, first, end - first, 1.0, 0);
    first_ = first;
    count_ = end - first;
  }
  SideAngles From(int64_t position) const {
    const int64_t pairs = rotation_.NumPairs();
    const int64_t at = (position - first_) * pairs;
    return {table_.cos.data() + at, table_.sin.data() + at, pairs,
            table_.head_step * pairs};
  }

 private:
  Rotation rotation_;  // its decays are ignored
  int64_t first_ = 0, count_ = 0;
  RotationTable table_;
};

// Memory that a thread keeps between calls.
struct ThreadCache {
  static ThreadCache& Get() {
    static thread_local ThreadCache cache;
    return cache;
  }

  FloatBuffer bias;
  FloatBuffer scratch;
  CachedAngles angles, value_angles;
  RotationTable q_table, k_table;  // for a rotation with decays
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
  // Few queries over many keys are decoded faster: transposing keys does not
  // pay for so few rows, and the rows of one head do not fill the registers.
  // Measured with 1 to 16 queries, 8 to 256 keys, 64 and 128 channels, 1 to 16
  // heads per group.
  if (s.k_len * s.head_dim >= 4096 * std::max<int64_t>(s.q_len, 2) &&
      DecodeRefuses(plan) == nullptr) {
    return "few queries over many keys";
  }
  if (terms.extra_dot &&
      s.head_dim + terms.extra_dot->q_rows.size(2) > kShortChannels) {
    return "heads wider than 256 channels";
  }
  // Limits a bias by pair to 4 MiB.
  constexpr int64_t kMostPairs = int64_t{1} << 20;
  if (terms.bias && !ByOffsetAlone(*terms.bias) &&
      s.q_heads * s.q_len * WholeVectors(s.k_len) > kMostPairs) {
    return "a bias by pair of more than a million pairs";
  }
  const AttentionOptions& o = plan.options;
  if (!o.q_segments.empty()) return "it has segments";
  if (!Consecutive(plan) || plan.mask.ByIndex()) {
    return "positions do not count up by one, alike in all sequences";
  }
  // Queries and keys share one table of cosines, whose size grows with their
  // distance.
  if ((terms.rotate || terms.rotate_values) &&
      std::abs(plan.mask.QPos(0, 0) - plan.mask.KPos(0, 0)) > kShortTokens) {
    return "queries lie far from keys";
  }
  return nullptr;
}

float* ShortScratch(int64_t floats) {
  FloatBuffer& scratch = ThreadCache::Get().scratch;
  if (floats > scratch.capacity()) {
    scratch.Resize(floats);
    std::fill_n(scratch.data(), scratch.capacity(), 0.0F);
  }
  return scratch.data();
}

ShortCall::ShortCall(const Call& c)
    : call(c),
      sizes(c.sizes),
      terms(c.terms),
      q_first(c.plan.mask.QPos(0, 0)),
      k_first(c.plan.mask.KPos(0, 0)),
      behind(c.plan.mask.Behind()),
      ahead(c.plan.mask.Ahead()),
      chunks(c.plan.options.chunk.has_value()),
      hides(!c.plan.pairs.empty() || !c.plan.options.prefix_lengths.empty()) {
  if (terms.bias) LayOutBias();
  if (terms.rotate) FindAngles();
  if (terms.rotate_values) FindValueAngles();
}

Interval ShortCall::WithinChunk(Interval seen, int64_t i) const {
  const PlaceRange chunk = call.plan.mask.Chunk(q_first + i);
  return Within(seen, {chunk.first - k_first, chunk.last - k_first + 1});
}

void ShortCall::LayOutBias() {
  FloatBuffer& rows = ThreadCache::Get().bias;
  const int64_t heads = BiasHeads(*terms.bias);
  const int64_t width = WholeVectors(sizes.k_len);
  if (ByOffsetAlone(*terms.bias)) {
    // One row per head, from the offset of the last query and first key to that
    // of the first query and last key, then zeros up to whole vectors. Offsets
    // outside the range of the shape get the value of the nearest one inside.
    const int64_t offsets = sizes.q_len - 1 + sizes.k_len;
    const int64_t stride = sizes.q_len - 1 + width;
    rows.Resize(heads * stride);
    FillBiasRows(*terms.bias, q_first + sizes.q_len - 1 - k_first,
                 call.shape.min_offset, call.shape.max_offset, offsets, stride,
                 rows.data());
    for (int64_t h = 0; h < heads && offsets < stride; ++h) {
      std::fill_n(rows.data() + h * stride + offsets, stride - offsets, 0.0F);
    }
    bias = rows.data() + sizes.q_len - 1;
    bias_head = heads == 1 ? 0 : stride;
    bias_row = -1;
    return;
  }
  const int64_t pairs = sizes.q_len * width;
  // Whole vectors are read from any key on, even at the end of the last row.
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
    const int64_t pairs = rotation.NumPairs();
    q_angles = {kept.q_table.cos.data(), kept.q_table.sin.data(), pairs,
                kept.q_table.head_step * pairs};
    k_angles = {kept.k_table.cos.data(), kept.k_table.sin.data(), pairs,
                kept.k_table.head_step * pairs};
    return;
  }
  kept.angles.Hold(rotation, std::min(q_first, k_first),
                   std::max(q_first + sizes.q_len, k_first + sizes.k_len));
  q_angles = kept.angles.From(q_first);
  k_angles = kept.angles.From(k_first);
}

void ShortCall::FindValueAngles() {
  const auto& [rotation, relative] = *terms.rotate_values;
  if (terms.rotate && terms.rotate->log_decay.empty() &&
      SameAngles(*terms.rotate, rotation)) {
    v_angles = k_angles;
    out_angles = q_angles;
  } else {
    CachedAngles& kept = ThreadCache::Get().value_angles;
    kept.Hold(rotation, std::min(q_first, k_first),
              std::max(q_first + sizes.q_len, k_first + sizes.k_len));
    v_angles = kept.From(k_first);
    out_angles = kept.From(q_first);
  }
  if (!relative) out_angles = {};
}

}  // namespace locus::kernels

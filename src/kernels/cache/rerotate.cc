// Rotates cached keys from one rotation or position to another:
//   K' = R_to R_from^-1 K.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/cache/storage.h"
#include "kernels/rotary/angles.h"
#include "kernels/simd/rows.h"
#include "locus/encoding.h"
#include "locus/kv_cache.h"

namespace locus {
namespace {

bool SamePairs(const Rotation& a, const Rotation& b) {
  return a.layout == b.layout && a.rotary_dim == b.rotary_dim &&
         a.first_channel == b.first_channel;
}

// Rotates rows from one rotation to another of the same pairs, and to positions
// `delta` later: R_to(p + delta) R_from(p)^-1, with R_from^-1 = R_from^T /
// gain^2. nullptr: no rotation. Angles and their products are in float64.
class Rerotation {
 public:
  // With room for `tokens` positions; allocates nothing later.
  Rerotation(const Rotation* from, const Rotation* to, int64_t delta,
             int64_t tokens)
      : from_(from),
        to_(to),
        delta_(delta),
        c0_(static_cast<size_t>(Pairs().NumPairs()), 1.0),
        s0_(c0_.size(), 0.0),
        c1_(c0_),
        s1_(s0_),
        heads_(std::max(from == nullptr ? 1 : from->heads,
                        to == nullptr ? 1 : to->heads)) {
    if (heads_ > 1) table_.head_step = tokens;
    table_.cos.resize(c0_.size() * static_cast<size_t>(heads_ * tokens));
    table_.sin.resize(table_.cos.size());
  }

  void Fill(std::span<const int64_t> positions) noexcept {
    for (int64_t h = 0; h < heads_; ++h) FillHead(h, positions);
  }

  // Rotates a row of key head h by the i-th position.
  void RotateRow(int64_t h, int64_t i, float* row) const noexcept {
    table_.RotateRow(Pairs(), table_.Row(h, i), row);
  }

 private:
  const Rotation& Pairs() const { return to_ != nullptr ? *to_ : *from_; }

  void FillHead(int64_t h, std::span<const int64_t> positions) noexcept {
    const size_t pairs = c0_.size();
    const double shrink =
        from_ == nullptr ? 1.0 : 1.0 / (from_->gain * from_->gain);
    for (size_t i = 0; i < positions.size(); ++i) {
      if (from_ != nullptr) {
        from_->CosSin(positions[i], c0_.data(), s0_.data(), h);
      }
      if (to_ != nullptr) {
        to_->CosSin(positions[i] + delta_, c1_.data(), s1_.data(), h);
      }
      const size_t at =
          static_cast<size_t>(table_.Row(h, static_cast<int64_t>(i))) * pairs;
      for (size_t p = 0; p < pairs; ++p) {
        table_.cos[at + p] =
            static_cast<float>(shrink * (c1_[p] * c0_[p] + s1_[p] * s0_[p]));
        table_.sin[at + p] =
            static_cast<float>(shrink * (s1_[p] * c0_[p] - c1_[p] * s0_[p]));
      }
    }
  }

  const Rotation* from_;
  const Rotation* to_;
  int64_t delta_;
  std::vector<double> c0_, s0_, c1_, s1_;
  int64_t heads_;  // that rotate differently
  kernels::RotationTable table_;
};

// Keys of one sequence from token `first` on, at the given positions.
struct Stretch {
  int64_t sequence = 0;
  int64_t first = 0;
  std::span<const int64_t> positions = {};
};

// Rotates ranges of the cached keys k in place. All memory is allocated before
// the first key changes, so an allocation failure leaves the keys intact.
void RerotateKeys(CachedRows& k, const std::vector<Stretch>& stretches,
                  const Rotation* from, const Rotation* to, int64_t delta) {
  const kernels::Rows rows = kernels::ReadRows(k);
  const int64_t heads = k.rows.size(1), dim = k.rows.size(3);
  // Angles for 256 tokens at a time: 256 x 64 pairs take 128 KiB.
  constexpr int64_t kTokens = 256;
  // If the pairs differ, rotates back and then forward, in one pass over the
  // keys.
  std::vector<Rerotation> steps;
  if (from != nullptr && to != nullptr && !SamePairs(*from, *to)) {
    steps.emplace_back(from, nullptr, delta, kTokens);
    steps.emplace_back(nullptr, to, delta, kTokens);
  } else {
    steps.emplace_back(from, to, delta, kTokens);
  }
  std::vector<float> scratch(static_cast<size_t>(heads * dim));
  for (const Stretch& stretch : stretches) {
    const int64_t size = static_cast<int64_t>(stretch.positions.size());
    for (int64_t at = 0; at < size; at += kTokens) {
      const int64_t count = std::min(kTokens, size - at);
      for (Rerotation& step : steps) {
        step.Fill(stretch.positions.subspan(static_cast<size_t>(at),
                                            static_cast<size_t>(count)));
      }
      ParallelFor(heads, kernels::ThreadsForElements(heads * count * dim, 0),
                  [&](int64_t h) noexcept {
                    float* row = scratch.data() + h * dim;
                    for (int64_t i = 0; i < count; ++i) {
                      const int64_t token = stretch.first + at + i;
                      rows.Load(stretch.sequence, h, token, row);
                      for (const Rerotation& step : steps) {
                        step.RotateRow(h, i, row);
                      }
                      kernels::WriteRow(k, stretch.sequence, h, token, row);
                    }
                  });
    }
  }
}

}  // namespace

void KvCache::Rerotate(const Rotation& rotation) {
  RotateTo(rotation, with_key_table_);
}

void KvCache::Rerotate(const Encoding& encoding, int64_t length) {
  const int64_t last =
      std::max(ShapeWith({}).max_k_pos, std::max<int64_t>(length, 1) - 1);
  const Terms terms = encoding.Lower(ShapeOf(last, last)).terms;
  RotateTo(terms.rotate, terms.rotate && terms.k_table);
}

void KvCache::RotateTo(std::optional<Rotation> rotation, bool with_key_table) {
  Validate(Terms{.rotate = rotation}, ShapeWith({}));
  const Rotation* from = kernels::StoredRotation(rotation_, with_key_table_);
  const Rotation* to = kernels::StoredRotation(rotation, with_key_table);
  CheckValueChannels(to);
  const bool same =
      from == nullptr || to == nullptr ? from == to : from->Id() == to->Id();
  if (!same) {
    std::vector<Stretch> all;
    for (int64_t b = 0; b < config_.batch; ++b) {
      all.push_back({.sequence = b, .positions = positions(b)});
    }
    RerotateKeys(k_, all, from, to, /*delta=*/0);
  }
  rotation_ = std::move(rotation);
  with_key_table_ = with_key_table;
}

void KvCache::Shift(int64_t delta, Sequence sequence, int64_t begin,
                    std::optional<int64_t> end) {
  const auto [first, last] = Chosen(sequence);
  // Packed positions hold several coordinates.
  const int64_t packed = rotation_ && rotation_->packed_from > 0
                             ? rotation_->packed_from
                             : kHighestPosition + 1;
  std::vector<Stretch> moved;
  std::vector<std::vector<int64_t>> to(1);
  for (int64_t b = first; b < last; ++b) {
    moved.push_back({.sequence = b,
                     .first = begin,
                     .positions = Range(b, begin, end.value_or(size(b)))});
    for (int64_t p : moved.back().positions) {
      int64_t target = 0;
      const bool overflow = __builtin_add_overflow(p, delta, &target);
      if (p >= packed) {
        Fail("sequence {} has packed position {}, which cannot be shifted", b,
             p);
      }
      if (overflow || target < kLowestPosition ||
          target >= std::min(packed, kHighestPosition + 1)) {
        Fail("a shift by {} takes position {} of sequence {} out of [{}, {}]",
             delta, p, b, kLowestPosition,
             std::min(packed - 1, kHighestPosition));
      }
      to[0].push_back(target);
    }
  }
  if (rotation_) Validate(Terms{.rotate = rotation_}, ShapeWith(to));
  const Rotation* stored = kernels::StoredRotation(rotation_, with_key_table_);
  if (stored != nullptr && delta != 0) {
    RerotateKeys(k_, moved, stored, stored, delta);
  }
  for (int64_t b = first; b < last; ++b) {
    std::vector<int64_t>& list = positions_[static_cast<size_t>(b)];
    const int64_t stop = end.value_or(size(b));
    for (int64_t i = begin; i < stop; ++i) {
      list[static_cast<size_t>(i)] += delta;
    }
  }
  Recount();
}

}  // namespace locus

// Cached keys turned from one rotation to another.
#include <vector>

#include "core/threads.h"
#include "kernels/kv_cache_rows.h"
#include "locus/encoding.h"
#include "locus/kv_cache.h"

namespace locus {
namespace kernels {

RotationTable TableBetween(const Rotation* from, const Rotation* to,
                           std::span<const int64_t> positions) {
  const size_t pairs =
      static_cast<size_t>((to != nullptr ? to : from)->NumPairs());
  RotationTable table;
  table.cos.resize(positions.size() * pairs);
  table.sin.resize(positions.size() * pairs);
  std::vector<double> c0(pairs, 1.0), s0(pairs, 0.0), c1(c0), s1(s0);
  const double shrink = from == nullptr ? 1.0 : 1.0 / (from->gain * from->gain);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (from != nullptr) from->CosSin(positions[i], c0.data(), s0.data());
    if (to != nullptr) to->CosSin(positions[i], c1.data(), s1.data());
    for (size_t p = 0; p < pairs; ++p) {
      table.cos[i * pairs + p] =
          static_cast<float>(shrink * (c1[p] * c0[p] + s1[p] * s0[p]));
      table.sin[i * pairs + p] =
          static_cast<float>(shrink * (s1[p] * c0[p] - c1[p] * s0[p]));
    }
  }
  return table;
}

}  // namespace kernels

namespace {

bool SamePairs(const Rotation& a, const Rotation& b) {
  return a.layout == b.layout && a.rotary_dim == b.rotary_dim &&
         a.first_channel == b.first_channel;
}

// Turns keys k [B, H, capacity, D] at `positions`, a list a sequence, in place.
void TurnKeys(Tensor& k, const std::vector<std::vector<int64_t>>& positions,
              const Rotation* from, const Rotation* to) {
  const kernels::Rows rows(k);
  const int64_t heads = k.size(1), dim = k.size(3);
  // Different pairs: back and then forth, in one go.
  const bool two_steps =
      from != nullptr && to != nullptr && !SamePairs(*from, *to);
  // Angles of a few tokens at a time: 256 x 64 pairs are 128 KiB.
  constexpr int64_t kTokens = 256;
  for (size_t b = 0; b < positions.size(); ++b) {
    const int64_t sequence = static_cast<int64_t>(b);
    const int64_t size = static_cast<int64_t>(positions[b].size());
    for (int64_t at = 0; at < size; at += kTokens) {
      const int64_t count = std::min(kTokens, size - at);
      const std::span<const int64_t> some(positions[b].data() + at,
                                          static_cast<size_t>(count));
      kernels::RotationTable back;
      if (two_steps) back = kernels::TableBetween(from, nullptr, some);
      const kernels::RotationTable table =
          kernels::TableBetween(two_steps ? nullptr : from, to, some);
      ParallelFor(heads, kernels::ThreadsForElements(heads * count * dim, 0),
                  [&](int64_t h) {
                    std::vector<float> row(static_cast<size_t>(dim));
                    for (int64_t i = 0; i < count; ++i) {
                      rows.Load(sequence, h, at + i, row.data());
                      if (two_steps)
                        kernels::RotateRow(*from, back, i, row.data());
                      kernels::RotateRow(to != nullptr ? *to : *from, table, i,
                                         row.data());
                      kernels::StoreFloats(
                          row.data(), dim, k.dtype(),
                          kernels::RowOf(k, sequence, h, at + i));
                    }
                  });
    }
  }
}

}  // namespace

void KvCache::Rerotate(const Rotation& rotation) {
  TurnTo(rotation, with_key_table_);
}

void KvCache::Rerotate(const Encoding& encoding, int64_t length) {
  const int64_t last = LastPosition(std::max<int64_t>(length, 1) - 1);
  const Terms terms = encoding.Lower(ShapeOf(last, last)).terms;
  TurnTo(terms.rotate, terms.rotate && terms.k_table);
}

void KvCache::TurnTo(const std::optional<Rotation>& rotation,
                     bool with_key_table) {
  int64_t first = 0;
  for (const auto& list : positions_) {
    for (int64_t p : list) first = std::min(first, p);
  }
  Validate(Terms{.rotate = rotation}, ShapeOf(first, first));
  const std::optional<Rotation> from = Stored();
  rotation_ = rotation;
  with_key_table_ = with_key_table;
  const std::optional<Rotation> to = Stored();
  if (!from && !to) return;
  if (from && to && from->Id() == to->Id()) return;
  TurnKeys(k_, positions_, from ? &*from : nullptr, to ? &*to : nullptr);
}

}  // namespace locus

#include "kernels/plan/pair_bits.h"

#include <bit>
#include <cstring>

#include "core/threads.h"

namespace locus::kernels {
namespace {

// Bit n is set if byte n of eight is not 0.
uint64_t BitsOfBytes(const uint8_t* bytes) {
  constexpr uint64_t kLow7 = 0x7F7F7F7F7F7F7F7FU;
  uint64_t x = 0;
  std::memcpy(&x, bytes, sizeof(x));
  if constexpr (std::endian::native == std::endian::big) {
    uint64_t swapped = 0;
    for (int n = 0; n < 8; ++n)
      swapped |= (x >> (8 * n) & 0xFF) << (56 - 8 * n);
    x = swapped;
  }
  // Maps every nonzero byte to 1, then gathers the eight bits.
  x = ((((x & kLow7) + kLow7) | x) >> 7) & 0x0101010101010101U;
  return (x * 0x0102040810204080U) >> 56;
}

// Packs `count` adjacent bytes into bits.
void PackAdjacent(const uint8_t* bytes, int64_t count, uint64_t* words) {
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) {
    words[j >> 6] |= BitsOfBytes(bytes + j) << (j & 63);
  }
  for (; j < count; ++j) {
    words[j >> 6] |= uint64_t{bytes[j] != 0} << (j & 63);
  }
}

}  // namespace

PairBits::PairBits(const CallSizes& sizes, const CallMask& mask,
                   const PairMask& pairs, const SortedTokens& tokens,
                   int threads)
    : batch_(tokens.Sequences() > 1 || (pairs.defined() && pairs.shape[0] > 1)
                 ? sizes.batch
                 : 1),
      heads_(pairs.defined() && pairs.shape[1] > 1 ? sizes.q_heads : 1),
      queries_(sizes.q_len),
      stride_((sizes.k_len + 63) / 64),
      words_(static_cast<size_t>(batch_ * heads_ * queries_ * stride_)) {
  // Rows per task: about 32768 keys.
  const int64_t rows =
      std::max<int64_t>(1, (int64_t{1} << 15) / (sizes.k_len + 1));
  const int64_t parts = (queries_ + rows - 1) / rows;
  const bool adjacent = pairs.defined() && pairs.strides[3] == 1;
  const auto pack = [&](int64_t task, int /*worker*/) noexcept {
    const int64_t b = task / parts / heads_, h = task / parts % heads_;
    const int64_t* order = tokens.KeyOrder(b);
    const int64_t first = task % parts * rows;
    for (int64_t n = first; n < std::min(first + rows, queries_); ++n) {
      const int64_t i = tokens.QuerySource(b, n);
      uint64_t* words =
          words_.data() + ((b * heads_ + h) * queries_ + n) * stride_;
      if (adjacent && order == nullptr) {
        PackAdjacent(pairs.At(b, h, i, 0), sizes.k_len, words);
        continue;
      }
      // For keys in order, intervals cover everything but the mask. Otherwise
      // the bits cover all rules, since a prefix need not be an interval.
      const int64_t keys = order == nullptr ? sizes.k_len : mask.Keys(b);
      for (int64_t j = 0; j < keys; ++j) {
        const bool seen = order != nullptr
                              ? mask.Visible(b, h, i, order[j])
                              : !pairs.defined() || *pairs.At(b, h, i, j) != 0;
        words[j >> 6] |= uint64_t{seen} << (j & 63);
      }
    }
  };
  ParallelFor(batch_ * heads_ * parts, threads, pack);
}

}  // namespace locus::kernels

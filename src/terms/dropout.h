// Which attention weights are dropped: a hash of the seed and of the indices of
// sequence, head, query and key, so that every pass, kernel and thread drops
// the same weights.
#ifndef LOCUS_SRC_TERMS_DROPOUT_H_
#define LOCUS_SRC_TERMS_DROPOUT_H_

#include <cmath>
#include <cstdint>

#include "locus/attention.h"

namespace locus {

// Mixes all bits of x into all others (the finaliser of SplitMix64).
constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// The weights of one query: key j is kept if Hash(j) is below DropoutLimit. All
// steps are 32-bit, to suit SIMD lanes. The comparison is decided by the high
// bits of a product, which depend on all bits of its factors.
struct DropoutRow {
  static constexpr uint32_t kStep = 0x9E3779B9U;
  static constexpr uint32_t kFirst = 0x7FEB352DU;
  static constexpr uint32_t kSecond = 0x846CA68BU;

  DropoutRow(const Dropout& dropout, int64_t b, int64_t h, int64_t i) {
    uint64_t x = MixBits(dropout.seed + 0x9E3779B97F4A7C15U);
    x = MixBits(x + static_cast<uint64_t>(b));
    x = MixBits(x + static_cast<uint64_t>(h));
    x = MixBits(x + static_cast<uint64_t>(dropout.first_query) +
                static_cast<uint64_t>(i) *
                    static_cast<uint64_t>(dropout.query_stride));
    middle = static_cast<uint32_t>(x >> 32);
    start = static_cast<uint32_t>(x) +
            static_cast<uint32_t>(dropout.first_key) * kStep;
    step = static_cast<uint32_t>(dropout.key_stride) * kStep;
  }

  uint32_t Start(int64_t j) const {
    return static_cast<uint32_t>(j) * step + start;
  }

  int32_t Hash(int64_t j) const {
    uint32_t x = Start(j);
    x = (x ^ (x >> 16)) * kFirst;
    x ^= (x >> 15) ^ middle;
    return static_cast<int32_t>(x * kSecond);
  }

  uint32_t start;
  uint32_t step;  // from key to key
  uint32_t middle;
};

// The keep probability 1 - rate, rounded to 32 bits, as a limit for Hash:
// between -2^31 and 2^31.
inline int64_t DropoutLimit(const Dropout& dropout) {
  return std::llround((1.0 - dropout.rate) * 0x1p32) - (int64_t{1} << 31);
}

// The factor of the weights that are kept.
inline double DropoutGain(const Dropout& dropout) {
  return 1.0 / (1.0 - dropout.rate);
}

}  // namespace locus

#endif  // LOCUS_SRC_TERMS_DROPOUT_H_

// A pair mask as bits, in the sorted order of queries and keys.
#ifndef LOCUS_SRC_KERNELS_PLAN_PAIR_BITS_H_
#define LOCUS_SRC_KERNELS_PLAN_PAIR_BITS_H_

#include <cstdint>
#include <vector>

#include "kernels/plan/tokens.h"
#include "kernels/plan/visible.h"
#include "terms/call.h"

namespace locus::kernels {

// Takes an eighth of the memory of a byte mask; broadcast over sequences and
// heads where the mask is.
class PairBits {
 public:
  PairBits() = default;
  PairBits(const CallSizes& sizes, const CallMask& mask, const PairMask& pairs,
           const SortedTokens& tokens, int threads);

  bool empty() const { return words_.empty(); }
  BitRow Row(int64_t b, int64_t h, int64_t i) const {
    if (words_.empty()) return {};
    const int64_t row =
        ((batch_ == 1 ? 0 : b) * heads_ + (heads_ == 1 ? 0 : h)) * queries_ + i;
    return {words_.data() + row * stride_};
  }

 private:
  int64_t batch_ = 1, heads_ = 1, queries_ = 0, stride_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_PAIR_BITS_H_

// A call with only the two extreme tokens of each sequence: it has the shape of
// the whole call, although no rank has all tokens.
#ifndef LOCUS_RING_AGREEMENT_EXTREME_CALL_H_
#define LOCUS_RING_AGREEMENT_EXTREME_CALL_H_

#include <vector>

#include "locus/plan.h"
#include "ring/call.h"

namespace locus::ring {

class ExtremeCall {
 public:
  // q and k: the extreme positions of each sequence, over all ranks.
  ExtremeCall(const Call& call, const AttentionOptions& given,
              const std::vector<Range>& q, const std::vector<Range>& k);
  ExtremeCall(const ExtremeCall&) = delete;  // options point into it
  ExtremeCall& operator=(const ExtremeCall&) = delete;

  Shape ShapeOfWhole() const;
  // Throws Error if no driver accepts such a call. Not for packed positions,
  // since two of them do not tell whether all increase.
  void CheckDriver(const Terms& terms, Pass pass) const;

 private:
  std::vector<int64_t> q_positions_, k_positions_, key_lengths_,
      prefix_lengths_;
  Tensor q_, k_, v_;  // never read
  AttentionOptions options_;
};

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_EXTREME_CALL_H_

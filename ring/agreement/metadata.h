// The exchange between ranks before the first block travels.
#ifndef LOCUS_RING_AGREEMENT_METADATA_H_
#define LOCUS_RING_AGREEMENT_METADATA_H_

#include <string>

#include "locus/plan.h"
#include "ring/call.h"

namespace locus::ring {

// The arguments of one rank.
struct RankInputs {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Encoding& encoding;
  const Options& options;
  Pass pass = Pass::kForward;
  std::string problem = {};  // found by the caller; "": none
};

// Collective. Throws the same Error on every rank if they disagree, or if one
// of them cannot take part.
Call ExchangeMetadata(const Group& group, const RankInputs& inputs);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_METADATA_H_

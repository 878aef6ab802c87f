// A hash of everything that an encoding lowered to.
#ifndef LOCUS_RING_AGREEMENT_TERMS_ID_H_
#define LOCUS_RING_AGREEMENT_TERMS_ID_H_

#include <cstdint>
#include <vector>

#include "locus/encoding.h"
#include "locus/terms.h"

namespace locus::ring {

// Equal terms have equal ids; different ones almost certainly differ.
uint64_t TermsId(const Terms& terms);
uint64_t ParamsId(const std::vector<Param>& params);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_TERMS_ID_H_

// Sums of the gradients of terms over pairs of pieces.
#ifndef LOCUS_RING_ATTENTION_TERM_SUMS_H_
#define LOCUS_RING_ATTENTION_TERM_SUMS_H_

#include "locus/terms.h"

namespace locus::ring {

// to += from, both for the same terms.
void Add(const TermGrads& from, TermGrads& to);

}  // namespace locus::ring

#endif  // LOCUS_RING_ATTENTION_TERM_SUMS_H_

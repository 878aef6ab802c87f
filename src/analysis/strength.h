// How much position contributes to a logit: closed forms derived from the
// terms.
#ifndef LOCUS_SRC_ANALYSIS_STRENGTH_H_
#define LOCUS_SRC_ANALYSIS_STRENGTH_H_

#include <vector>

#include "locus/terms.h"

namespace locus::analysis {

// The largest |logit| that position can contribute for unit vectors q and k:
//   scale ( max_p gain^2 e^(decay_p (m-n)) + |a_m.c_n| + |Tq[b]| + |Tk[b]| )
//   + |B|, plus |Tv[b]| for what it adds to a value.
double Contribution(const Terms& terms, int64_t h, int64_t m, int64_t n);

// How strongly a key at n stands out for a query at m:
//   scale ( bound + a_m.c_n + |Tq[b]| + |Tk[b]| ) + B
// with the bound of RoFormer (section 3.4.3) for rotated pairs: the mean over j
// of |sum_(p<j) e^(i (m-n) theta_p)|, as a share of its value at m = n.
double Strength(const Terms& terms, int64_t h, int64_t m, int64_t n);

// Whether the only contribution of position is a bias that is never positive.
bool IsPenalty(const Terms& terms);

// Rows [positions, dim] rotated by their positions, including the decay of a
// query, e^(decay m).
std::vector<double> RotatedRows(const Rotation& rotation,
                                const std::vector<double>& rows, int64_t dim,
                                const std::vector<int64_t>& positions);

}  // namespace locus::analysis

#endif  // LOCUS_SRC_ANALYSIS_STRENGTH_H_

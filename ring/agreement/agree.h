// Compares arguments of the ranks; all ranks find the same first difference.
#ifndef LOCUS_RING_AGREEMENT_AGREE_H_
#define LOCUS_RING_AGREEMENT_AGREE_H_

#include <span>
#include <string>
#include <vector>

#include "locus/ring_group.h"

namespace locus::ring {

// A value that must be the same on every rank. A rank that does not know it (it
// holds no tokens) leaves it empty.
struct Field {
  std::string label = {};
  std::string value = {};
};

// Throws the same Error on every rank if one of them passes a nonempty `error`,
// or two pass different values. The error of a rank is prefixed with its
// number. Returns the values agreed on.
std::vector<Field> Agree(const Group& group, const std::string& error,
                         const std::vector<Field>& mine);

// The numbers of every rank, indexed by rank. Sizes may differ.
std::vector<std::vector<int64_t>> GatherNumbers(const Group& group,
                                                std::span<const int64_t> mine);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_AGREE_H_

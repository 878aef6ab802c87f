// Ranks compare their arguments; all of them find the same first difference.
#ifndef LOCUS_RING_AGREEMENT_AGREE_H_
#define LOCUS_RING_AGREEMENT_AGREE_H_

#include <span>
#include <string>
#include <vector>

#include "locus/ring_group.h"

namespace locus::ring {

// One thing that must be the same on every rank. A rank that cannot tell (it
// holds no tokens) leaves the value empty.
struct Field {
  std::string label = {};
  std::string value = {};
};

// Throws the same Error on every rank if one of them brings an error of its
// own (not empty), or two bring different values. An error of one rank is
// prefixed with its number. Returns the values agreed on.
std::vector<Field> Agree(const Group& group, const std::string& error,
                         const std::vector<Field>& mine);

// The numbers of every rank, by rank. Sizes may differ.
std::vector<std::vector<int64_t>> GatherNumbers(const Group& group,
                                                std::span<const int64_t> mine);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_AGREE_H_

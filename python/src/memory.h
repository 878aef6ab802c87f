// What a call would need is compared with what there is, before the work.
//
// Arrays by stride tricks are long and cost nothing; what is made of them is
// not. Linux grants memory that it does not have, and ends the process later.
#ifndef LOCUS_PYTHON_SRC_MEMORY_H_
#define LOCUS_PYTHON_SRC_MEMORY_H_

#include <cstdint>
#include <string>

namespace locus::python {

// Raises MemoryError if `count` things of `bytes` bytes each are more than the
// machine has available. what: "positions of 4 elements".
void RequireMemory(const std::string& what, int64_t count, int64_t bytes);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_MEMORY_H_

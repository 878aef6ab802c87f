// What a call may bring beside its encoding, ready to be measured.
#ifndef LOCUS_BENCH_OPERANDS_H_
#define LOCUS_BENCH_OPERANDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "locus/attention.h"
#include "locus/terms.h"

namespace locus::bench {

// "sinks", "key-bias" and so on, in the order of the algebra.
std::vector<std::string_view> OperandNames();
// The name itself. Throws Error with the known ones if there is none.
std::string_view FindOperand(std::string_view name);

// Adds the operand of that name to a call of self-attention on [1, heads,
// length, dim]. What the options point to lives in this object.
class Operands {
 public:
  void Add(std::string_view name, int64_t heads, int64_t length, int64_t dim,
           AttentionOptions& options, Terms& terms, BackwardOptions& backward);

 private:
  std::vector<uint8_t> mask_;
  std::vector<int64_t> prefix_;
};

}  // namespace locus::bench

#endif  // LOCUS_BENCH_OPERANDS_H_

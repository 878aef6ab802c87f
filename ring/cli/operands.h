// The operands of `locus ring check --operands`.
#ifndef LOCUS_RING_CLI_OPERANDS_H_
#define LOCUS_RING_CLI_OPERANDS_H_

#include <cstdint>
#include <vector>

#include "ring/cli/case.h"

namespace locus::ring {

// Sinks, biases per key and per pair, a mask, a prefix and dropout for the
// tokens of a shard, or of the whole sequence: numbers that depend only on the
// tokens, like those of Inputs.
class CaseOperands {
 public:
  CaseOperands(const Case& c, const std::vector<Chunk>& chunks);
  CaseOperands(const CaseOperands&) = delete;  // options point into it
  CaseOperands& operator=(const CaseOperands&) = delete;

  void AddTo(AttentionOptions& options) const;

 private:
  Tensor sinks_;               // [heads]
  Tensor key_bias_;            // [1, heads, tokens]
  Tensor pair_bias_;           // [1, heads, tokens, length]
  std::vector<uint8_t> mask_;  // [1, 1, tokens, length]
  int64_t tokens_ = 0, length_ = 0;
  std::vector<int64_t> prefix_;
  Dropout dropout_;
};

}  // namespace locus::ring

#endif  // LOCUS_RING_CLI_OPERANDS_H_

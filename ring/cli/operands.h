// What `locus ring check --operands` brings beside positions.
#ifndef LOCUS_RING_CLI_OPERANDS_H_
#define LOCUS_RING_CLI_OPERANDS_H_

#include <cstdint>
#include <vector>

#include "ring/cli/case.h"

namespace locus::ring {

// Sinks, a bias per key and per pair, a mask, a prefix and dropout for the
// tokens of a shard, or of the whole: numbers that depend on the tokens alone,
// as those of Inputs do.
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

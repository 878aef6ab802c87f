// Gradients of keys, which travel around the ring after the blocks.
#ifndef LOCUS_RING_BLOCKS_GRAD_RING_H_
#define LOCUS_RING_BLOCKS_GRAD_RING_H_

#include "ring/blocks/kv_ring.h"

namespace locus::ring {

// Gradients of one rank's keys, f32, and that of their bias if there is one.
struct KeyGrads {
  Tensor d_k = {};
  Tensor d_v = {};
  Tensor key_bias = {};

  static KeyGrads Zeros(const Call& call, int owner) {
    return Make(call, owner, &Tensor::Zeros);
  }
  static KeyGrads Empty(const Call& call, int owner) {
    return Make(call, owner, &Tensor::Empty);
  }
  void Add(const KeyGrads& share);
  // Adds the gradients from a call with some of the keys.
  void Add(const AttentionGrads& part, const Chunk& keys);
  Message ToMessage() const { return ring::ToMessage({d_k, d_v, key_bias}); }

 private:
  static KeyGrads Make(const Call& call, int owner,
                       Tensor (*make)(DType, std::vector<int64_t>));
};

// Follows the blocks. The owner keeps its own contribution. The next rank
// starts the sum, each later one adds its contribution, and the last one sends
// the sum home, where the owner's contribution is added. A sum arrives while
// the rank computes its contribution, and leaves while the rank computes the
// next block.
class GradRing {
 public:
  GradRing(const Call& call, AsyncTransport& transport, Neighbours ring);

  // Starts receiving the sum for the block of this step.
  void Begin(int step);
  // Adds this rank's contribution to another's block, and sends the sum on.
  void End(int step, const KeyGrads& share);
  // The sums of this rank's own keys, including its contribution `own`, once
  // everything is sent.
  KeyGrads Finish(const KeyGrads& own);

 private:
  int HopsOf(int owner) const { return call_.hops[static_cast<size_t>(owner)]; }

  const Call& call_;
  AsyncTransport& transport_;
  Neighbours ring_;
  int last_ = 0;  // the rank that adds last to this rank's block
  KeyGrads home_, sum_;
  AsyncTransport::Request coming_home_, receiving_, sending_;
};

}  // namespace locus::ring

#endif  // LOCUS_RING_BLOCKS_GRAD_RING_H_

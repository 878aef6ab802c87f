// The blocks of keys and values, in the order in which they come around.
//
// At step t a rank holds the block of rank - t. It forwards it and receives the
// next one while the caller computes. A block travels only as far as the last
// rank that needs it, so no rank waits for a block that nobody needs.
#ifndef LOCUS_RING_BLOCKS_KV_RING_H_
#define LOCUS_RING_BLOCKS_KV_RING_H_

#include <memory>

#include "ring/blocks/operands.h"

namespace locus::ring {

inline constexpr int kBlockTag = kFirstTag;     // keys and values
inline constexpr int kGradTag = kFirstTag + 1;  // gradients along the ring
inline constexpr int kHomeTag = kFirstTag + 2;  // gradients to their owner

// Ranks of a ring.
struct Neighbours {
  int rank = 0;
  int size = 1;

  int Left() const { return (rank + size - 1) % size; }
  int Right() const { return (rank + 1) % size; }
  // The owner of the block that is here at step t.
  int Owner(int step) const { return (rank + size - step) % size; }
};

class KvRing {
 public:
  KvRing(const Call& call, AsyncTransport& transport, Neighbours ring,
         std::shared_ptr<Block> own)
      : call_(call),
        transport_(transport),
        ring_(ring),
        dtype_(own->k.dtype()),
        here_(std::move(own)) {}

  // Starts the transfers of step t; returns the block of this step, or nullptr
  // if it does not come this far.
  std::shared_ptr<Block> Begin(int step);
  // Waits until the next block has arrived and this one is sent.
  void End();

 private:
  const Call& call_;
  AsyncTransport& transport_;
  Neighbours ring_;
  DType dtype_;
  std::shared_ptr<Block> here_, next_;
  AsyncTransport::Request sending_, receiving_;
};

}  // namespace locus::ring

#endif  // LOCUS_RING_BLOCKS_KV_RING_H_

// The blocks of keys and values, one after the other, as they come around.
//
// At step t a rank holds the block of rank - t. It sends it on and receives the
// next while the caller computes. A block travels no further than the last
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
  // Whose block is here at step t.
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

  // Starts the messages of step t; returns the block of this step, or nullptr
  // if it did not come this far.
  std::shared_ptr<Block> Begin(int step);
  // Waits for the next block, and until this one is sent.
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

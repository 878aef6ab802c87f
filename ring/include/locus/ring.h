// Ring attention: one sequence spread over the ranks of an MPI communicator.
//
// Every rank holds some tokens: their queries stay, their keys and values
// travel around the ring while the rank computes. Partial results join by lse
// (see Merge in attention.h). Positions are those of the whole sequence, so
// every encoding gives what one process gives.
//
// All functions here are collective: every rank calls them with the same sizes,
// options and encoding. Ranks that disagree all get the same Error. A rank that
// dies or stops ends the others with LostRank (ring_group.h).
#ifndef LOCUS_RING_H_
#define LOCUS_RING_H_

#include <mpi.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/ring_group.h"
#include "locus/tensor.h"

namespace locus {
namespace LOCUS_API ring {

// Which tokens a rank of R holds.
enum class Sharding : uint8_t {
  kContiguous,  // one stretch each; any lengths, none included
  kZigzag,      // of 2R even stretches, r and 2R - 1 - r: causal work balances
  kRoundRobin,  // r, r + R, r + 2R, ...
};

std::string_view ShardingName(Sharding sharding);
// Throws Error for a name that is none of "contiguous", "zigzag" and
// "round-robin".
Sharding FindSharding(std::string_view name);

// Tokens first, first + stride, ... of the sequence.
struct Chunk {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;
};

// What `rank` holds of `length` tokens, in the order it keeps them. Contiguous
// shards are as even as can be.
std::vector<Chunk> Shard(Sharding sharding, int64_t length, int rank,
                         int ranks);
// Those tokens of x [B, H, length, D], copied together in that order.
Tensor TakeShard(const Tensor& x, const std::vector<Chunk>& chunks);

// What a call did, on this rank.
struct Stats {
  double compute_seconds = 0.0;  // in the engine and joining its results
  double wait_seconds = 0.0;     // for messages, with nothing to compute
  int64_t bytes_sent = 0;
  int64_t pairs_computed = 0;  // of a stretch of queries and one of keys
  int64_t pairs_skipped = 0;   // neither sees the other
};

struct Options {
  // What belongs to tokens is that of this rank's, in its order: positions,
  // segments, table_queries and key_bias. Without positions, tokens count
  // through the whole sequence, and queries end where its keys end.
  // `key_lengths` and `prefix_lengths` count tokens of the whole sequence.
  // `mask` and `pair_bias` are rows of this rank's queries over the keys of all
  // ranks, in the order of the sequence, and so are weights. Sinks and dropout
  // are the same on every rank, and a ring drops what one process drops.
  // by_index is refused.
  AttentionOptions attention = {};
  Sharding sharding = Sharding::kContiguous;
  double deadline_seconds = kDeadlineSeconds;
  Stats* stats = nullptr;  // filled if given
};

// q [B, Hq, nq, D], k [B, Hkv, nk, D] and v [B, Hkv, nk, Dv]: this rank's
// tokens. The result is that of its queries over every rank's keys. Partial
// results are float32 whatever the type of q.
//
// MPI must be initialised; with MPI_THREAD_SERIALIZED or more, a thread of this
// call moves messages while the engine computes. Messages carry tags from
// kFirstTag on.
AttentionResult Attention(MPI_Comm comm, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Encoding& encoding,
                          const Options& options = {});

// Gradients of the sum over all ranks of d_out * out + d_lse * lse: those of
// what this rank brings and, summed over all ranks and the same on each, those
// of what all of them share: sinks and the encoding's parameters. `forward` is
// this rank's result with lse; `backward` is what this rank asks for.
EncodingGrads AttentionBackward(MPI_Comm comm, const Tensor& d_out,
                                const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionResult& forward,
                                const Encoding& encoding,
                                const Options& options = {},
                                const BackwardOptions& backward = {});

// Tags of messages: kFirstTag .. kFirstTag + 2.
inline constexpr int kFirstTag = 7100;

}  // namespace ring
}  // namespace locus

#endif  // LOCUS_RING_H_

// Ring attention: one sequence, distributed over the ranks of an MPI
// communicator.
//
// Every rank holds some tokens: their queries stay, and their keys and values
// travel around the ring while the rank computes. Partial results are merged by
// lse (see Merge in attention.h). Positions are those of the whole sequence, so
// every encoding gives the same result as in a single process.
//
// All functions here are collective: every rank calls them with the same sizes,
// options and encoding. If ranks disagree, all of them get the same Error. If a
// rank dies or hangs, the others end with LostRank (ring_group.h).
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

// Which tokens rank r of R holds.
enum class Sharding : uint8_t {
  kContiguous,  // one range each, of any length, including 0
  kZigzag,      // ranges r and 2R - 1 - r of 2R: balances causal work
  kRoundRobin,  // r, r + R, r + 2R, ...
};

std::string_view ShardingName(Sharding sharding);
// Throws Error unless `name` is "contiguous", "zigzag" or "round-robin".
Sharding FindSharding(std::string_view name);

// Tokens first, first + stride, ... of the sequence.
struct Chunk {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;
};

// The chunks of `length` tokens that `rank` holds, in the order in which it
// keeps them. Contiguous shards are as equal as possible.
std::vector<Chunk> Shard(Sharding sharding, int64_t length, int rank,
                         int ranks);
// A copy of those tokens of x [B, H, length, D], concatenated in that order.
Tensor TakeShard(const Tensor& x, const std::vector<Chunk>& chunks);

// Statistics of a call on this rank.
struct Stats {
  double compute_seconds = 0.0;  // computing and merging results
  double wait_seconds = 0.0;     // for messages, with nothing to compute
  int64_t bytes_sent = 0;
  int64_t pairs_computed = 0;  // of a range of queries and one of keys
  int64_t pairs_skipped = 0;   // no query sees a key
};

struct Options {
  // Operands of tokens are those of this rank's tokens, in its order:
  // positions, segments, table_queries and key_bias. Without positions, tokens
  // are numbered through the whole sequence, and queries end where its keys
  // end. `key_lengths` and `prefix_lengths` count tokens of the whole sequence.
  // `mask` and `pair_bias` have rows for this rank's queries and columns for
  // the keys of all ranks, in the order of the sequence, and so do returned
  // weights. Sinks and dropout are the same on every rank, and dropout drops
  // the same weights as in a single process. by_index is not supported.
  AttentionOptions attention = {};
  Sharding sharding = Sharding::kContiguous;
  double deadline_seconds = kDeadlineSeconds;
  Stats* stats = nullptr;  // filled if given
};

// q [B, Hq, nq, D], k [B, Hkv, nk, D] and v [B, Hkv, nk, Dv] are this rank's
// tokens. The result is that of its queries over the keys of every rank.
// Partial results are float32 whatever the type of q is.
//
// MPI must be initialised. With MPI_THREAD_SERIALIZED or more, a thread of this
// call transfers messages while others compute. Messages have tags from
// kFirstTag on.
AttentionResult Attention(MPI_Comm comm, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Encoding& encoding,
                          const Options& options = {});

// Gradients of the sum over all ranks of d_out * out + d_lse * lse: those of
// this rank's tensors, and those of shared values (sinks and the encoding's
// parameters), which are summed over all ranks and the same on each. `forward`
// is this rank's result with lse; `backward` selects the gradients that this
// rank needs.
EncodingGrads AttentionBackward(MPI_Comm comm, const Tensor& d_out,
                                const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionResult& forward,
                                const Encoding& encoding,
                                const Options& options = {},
                                const BackwardOptions& backward = {});

// Message tags: kFirstTag .. kFirstTag + 2.
inline constexpr int kFirstTag = 7100;

}  // namespace ring
}  // namespace locus

#endif  // LOCUS_RING_H_

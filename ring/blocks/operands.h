// Operands of one engine call: a piece of queries and a piece of keys, as
// float32, with their positions.
#ifndef LOCUS_RING_BLOCKS_OPERANDS_H_
#define LOCUS_RING_BLOCKS_OPERANDS_H_

#include <memory>
#include <vector>

#include "ring/call.h"
#include "ring/transport/async_transport.h"

namespace locus::ring {

// Keys and values of one rank, which travel around the ring, and their per-key
// operands. All except k and v may be absent.
struct Block {
  int owner = 0;
  Tensor k = {};         // [B, Hkv, n, D], contiguous, of the caller's type
  Tensor v = {};         // [B, Hkv, n, Dv]
  Tensor key_bias = {};  // [B or 1, Hq or 1, n] f32
  std::vector<int64_t> positions = {};  // as given to the owner
  std::vector<int64_t> segments = {};
};

// This rank's own block; shares k and v if they are contiguous.
std::shared_ptr<Block> OwnBlock(const Call& call, int rank, const Tensor& k,
                                const Tensor& v,
                                const AttentionOptions& options);
// Storage for the block of `owner`.
std::shared_ptr<Block> EmptyBlock(const Call& call, int owner, DType dtype);
Message ToMessage(const std::shared_ptr<Block>& block);
// Contiguous tensors that travel together; undefined ones are omitted.
Message ToMessage(const std::vector<Tensor>& tensors);

// `rows` is the place among the rank's or the block's tokens, `tokens` that in
// the whole sequence.
struct QueryPiece {
  Piece piece;
  Chunk rows = {};
  Chunk tokens = {};
  Tensor q = {};
  Tensor table_queries = {};
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
};

struct KeyPiece {
  Piece piece;
  Chunk rows = {};
  Chunk tokens = {};
  Tensor k = {};
  Tensor v = {};
  Tensor key_bias = {};
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
  std::vector<int64_t> lengths = {};  // valid keys of the piece, by batch
  std::vector<int64_t> prefix = {};   // of the first keys; empty: no prefixes
};

std::vector<QueryPiece> QueryPieces(const Call& call, int rank, const Tensor& q,
                                    const AttentionOptions& options);
KeyPiece MakeKeyPiece(const Call& call, const Block& block, const Piece& piece);

// Whether positions are consecutive in the pieces and the same in every
// sequence, without a prefix: then causality and window leave one contiguous
// range on either side of a pair.
bool CanTrim(const Call& call, const QueryPiece& q, const KeyPiece& k);
// The queries that see a key of the other piece, and the keys that are seen.
QueryPiece Trimmed(const Call& call, const QueryPiece& q, const KeyPiece& k);
KeyPiece Trimmed(const Call& call, const KeyPiece& k, const QueryPiece& q);

// The options of one engine call, without sinks; spans point into the pieces,
// and tensors are views.
AttentionOptions PairOptions(const AttentionOptions& options,
                             const QueryPiece& q, const KeyPiece& k);

}  // namespace locus::ring

#endif  // LOCUS_RING_BLOCKS_OPERANDS_H_

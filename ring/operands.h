// What the engine is given: a piece of queries and a piece of keys, as float32,
// with their positions.
#ifndef LOCUS_RING_OPERANDS_H_
#define LOCUS_RING_OPERANDS_H_

#include <memory>
#include <vector>

#include "ring/call.h"
#include "ring/courier.h"

namespace locus::ring {

// Keys and values of one rank, on their way around the ring.
struct Block {
  int owner = 0;
  Tensor k = {};  // [B, Hkv, n, D], contiguous, of the caller's type
  Tensor v = {};  // [B, Hkv, n, Dv]
  std::vector<int64_t> positions = {};  // as given to the owner; may be absent
  std::vector<int64_t> segments = {};
};

// This rank's own; shares k and v where they are contiguous.
std::shared_ptr<Block> OwnBlock(const Tensor& k, const Tensor& v, int rank,
                                const AttentionOptions& options);
// Room for the block of `owner`.
std::shared_ptr<Block> EmptyBlock(const Call& call, int owner, DType dtype);
Parcel ToParcel(const std::shared_ptr<Block>& block);
// Contiguous tensors that travel together.
Parcel ToParcel(const std::vector<Tensor>& tensors);

// `rows` are their place among the rank's tokens, or the block's.
struct QueryPiece {
  Piece piece;
  Chunk rows = {};
  Tensor q = {};
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
};

struct KeyPiece {
  Piece piece;
  Chunk rows = {};
  Tensor k = {};
  Tensor v = {};
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
  std::vector<int64_t> lengths = {};  // keys of the piece that exist, by batch
};

std::vector<QueryPiece> QueryPieces(const Call& call, int rank, const Tensor& q,
                                    const AttentionOptions& options);
KeyPiece MakeKeyPiece(const Call& call, const Block& block, const Piece& piece);

// Whether positions rise by one through the pieces and are alike in every
// sequence: then what a mask leaves of a pair is one stretch on either side.
bool CanTrim(const Call& call, const QueryPiece& q, const KeyPiece& k);
// The queries that see a key of the other piece, and the keys that are seen.
QueryPiece Trimmed(const Call& call, const QueryPiece& q, const KeyPiece& k);
KeyPiece Trimmed(const Call& call, const KeyPiece& k, const QueryPiece& q);

// The options of one engine call; spans point into the pieces.
AttentionOptions PairOptions(const AttentionOptions& options,
                             const QueryPiece& q, const KeyPiece& k);

}  // namespace locus::ring

#endif  // LOCUS_RING_OPERANDS_H_

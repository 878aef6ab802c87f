// What every rank knows of a call before the first block travels: sizes, who
// holds which tokens, the terms, and which blocks must go how far.
#ifndef LOCUS_RING_CALL_H_
#define LOCUS_RING_CALL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "locus/ring.h"

namespace locus::ring {

// Lowest and highest; empty until the first Add.
struct Range {
  int64_t lo = INT64_MAX;
  int64_t hi = INT64_MIN;

  void Add(int64_t value) {
    lo = value < lo ? value : lo;
    hi = value > hi ? value : hi;
  }
  void Add(const Range& other) {
    lo = other.lo < lo ? other.lo : lo;
    hi = other.hi > hi ? other.hi : hi;
  }
  bool Empty() const { return lo > hi; }
  bool Meets(const Range& other) const {
    return lo <= other.hi && other.lo <= hi;
  }
};

// A stretch of tokens that a rank holds: one operand of the engine.
struct Piece {
  Chunk tokens = {};     // of the whole sequence
  int64_t begin = 0;     // the first one among the rank's tokens
  Range positions = {};  // over every sequence of the batch
  Range segments = {};

  // Where they lie among the rank's tokens.
  Chunk Rows() const { return {.first = begin, .count = tokens.count}; }
};

// Positions or segments of one rank's tokens: [length], or [batch * length].
struct TokenIds {
  std::span<const int64_t> values = {};
  int64_t length = 0;
  int64_t batch = 1;

  bool PerSequence() const {
    return static_cast<int64_t>(values.size()) != length;
  }
  // Those of one piece, in the same form.
  std::vector<int64_t> Of(const Piece& piece) const;
};

// How a bias per key is given, [batch, heads, keys]: the sizes or 1; 0 for
// none.
struct KeyBiasForm {
  int64_t batch = 0;
  int64_t heads = 0;

  bool given() const { return heads > 0; }
};

struct Call {
  int64_t batch = 0;
  int64_t q_len = 0;  // of this rank's tensors
  int64_t k_len = 0;
  int64_t q_total = 0;  // tokens over all ranks
  int64_t k_total = 0;
  // Where positions are not given, that of query 0: of all sequences, or of
  // each where these begin differently.
  std::vector<int64_t> q_first = {};
  bool q_positions_given = false;
  bool k_positions_given = false;  // they travel with the block, as given
  bool k_positions_per_sequence = false;
  bool segmented = false;
  bool k_segments_per_sequence = false;
  KeyBiasForm key_bias = {};  // travels too
  int64_t table_dim = 0;      // of table_queries; 0: there are none
  bool causal = false;
  std::optional<Window> window = {};
  std::optional<int64_t> chunk = {};
  std::span<const int64_t> key_lengths = {};  // of the whole sequence
  std::span<const int64_t> prefix_lengths = {};
  std::vector<std::vector<Piece>> queries = {};  // by rank
  std::vector<std::vector<Piece>> keys = {};
  std::vector<int64_t> key_counts = {};  // tokens, by rank
  std::vector<int> hops = {};  // how many ranks a block travels on, by owner
  Shape shape = {};            // of the whole; has the heads and their sizes
  Terms terms = {};

  int64_t ValueDim() const { return shape.value_dim.value_or(shape.head_dim); }
  // The offsets m - n that causality and window leave.
  Range Offsets() const;
  // Whether a query of one piece may see a key of the other.
  bool Sees(const Piece& q, const Piece& k) const;
  // Whether any query of `rank` may see a key of `owner`.
  bool Needs(int rank, int owner) const;

 private:
  // The chunks that positions lie in; without chunks all are one.
  Range Chunks(const Range& positions) const;
  // Whether some of the keys belong to the prefix of a sequence.
  bool InPrefix(const Piece& k) const;
};

// How many of these tokens come before token `length` of the sequence.
int64_t CountBefore(const Chunk& tokens, int64_t length);

}  // namespace locus::ring

#endif  // LOCUS_RING_CALL_H_

// What every rank knows about a call before the first block travels: sizes,
// which tokens each rank holds, the terms, and how far each block must travel.
#ifndef LOCUS_RING_CALL_H_
#define LOCUS_RING_CALL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "locus/ring.h"

namespace locus::ring {

// The lowest and highest value; empty until the first Add.
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

// A contiguous piece of the tokens of a rank: one operand of an engine call.
struct Piece {
  Chunk tokens = {};     // in the whole sequence
  int64_t begin = 0;     // of the first one among the rank's tokens
  Range positions = {};  // over every sequence of the batch
  Range segments = {};

  // Their place among the rank's tokens.
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

// How a key bias [batch, heads, keys] is given: its sizes, or 1; 0 if there is
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
  // Unless positions are given, that of query 0: one for all sequences, or one
  // for each if they begin differently.
  std::vector<int64_t> q_first = {};
  bool q_positions_given = false;
  bool k_positions_given = false;  // they travel with the block, as given
  bool k_positions_per_sequence = false;
  bool segmented = false;
  bool k_segments_per_sequence = false;
  KeyBiasForm key_bias = {};  // travels as well
  int64_t table_dim = 0;      // of table_queries; 0 if there are none
  bool causal = false;
  std::optional<Window> window = {};
  std::optional<int64_t> chunk = {};
  std::span<const int64_t> key_lengths = {};  // of the whole sequence
  std::span<const int64_t> prefix_lengths = {};
  std::vector<std::vector<Piece>> queries = {};  // by rank
  std::vector<std::vector<Piece>> keys = {};
  std::vector<int64_t> key_counts = {};  // tokens, by rank
  std::vector<int> hops = {};  // how many ranks a block travels, by owner
  Shape shape = {};  // of the whole call, with its heads and their sizes
  Terms terms = {};

  int64_t ValueDim() const { return shape.value_dim.value_or(shape.head_dim); }
  // The offsets m - n that causality and window allow.
  Range Offsets() const;
  // Whether a query of one piece may see a key of the other.
  bool Sees(const Piece& q, const Piece& k) const;
  // Whether any query of `rank` may see a key of `owner`.
  bool Needs(int rank, int owner) const;

 private:
  // The chunks that contain the positions; without chunks there is only one.
  Range Chunks(const Range& positions) const;
  // Whether some of the keys are in the prefix of a sequence.
  bool InPrefix(const Piece& k) const;
};

// How many of these tokens come before token `length` of the sequence.
int64_t CountBefore(const Chunk& tokens, int64_t length);

}  // namespace locus::ring

#endif  // LOCUS_RING_CALL_H_

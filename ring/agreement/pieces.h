// The tokens that each rank holds, and their metadata: the extreme positions
// and segments of each piece.
#ifndef LOCUS_RING_AGREEMENT_PIECES_H_
#define LOCUS_RING_AGREEMENT_PIECES_H_

#include <span>
#include <string_view>
#include <vector>

#include "ring/call.h"

namespace locus::ring {

using PiecesByRank = std::vector<std::vector<Piece>>;

// The pieces of every rank, given the number of tokens of each. Throws Error if
// the sharding requires other numbers. `what` names them in the message.
PiecesByRank MakePieces(std::string_view what,
                        const std::vector<int64_t>& lengths, Sharding sharding);

// Extreme positions of a rank: of each piece over the batch, and of each
// sequence over the pieces (excluding keys past their length).
struct Extremes {
  std::vector<Range> pieces;
  std::vector<Range> sequences;
};

// `begins` has the positions of token 0 if positions are not given: one for all
// sequences, or one for each.
Extremes FindExtremes(const std::vector<Piece>& pieces, const TokenIds& ids,
                      std::span<const int64_t> begins,
                      std::span<const int64_t> key_lengths);

// Collective. Sets the positions and segments of every rank's pieces; returns
// the extreme positions of each sequence over all ranks.
std::vector<Range> ShareRanges(const Group& group, PiecesByRank& pieces,
                               const Extremes& mine, const TokenIds& segments);

// Collective. Whether positions increase from token to token in each sequence
// and in each of its segments, over the tokens of all ranks: the first
// `lengths[b]` of sequence b.
bool Rise(const Group& group, const PiecesByRank& pieces,
          const TokenIds& positions, const TokenIds& segments,
          std::span<const int64_t> lengths);

int64_t Total(const std::vector<int64_t>& lengths);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_PIECES_H_

// Which tokens each rank holds, and what is known of them: the extreme
// positions and segments of each stretch.
#ifndef LOCUS_RING_AGREEMENT_PIECES_H_
#define LOCUS_RING_AGREEMENT_PIECES_H_

#include <span>
#include <string_view>
#include <vector>

#include "ring/call.h"

namespace locus::ring {

using PiecesByRank = std::vector<std::vector<Piece>>;

// Those of every rank, given how many tokens each holds. Throws Error if the
// sharding gives it other numbers. `what` names them in the message.
PiecesByRank MakePieces(std::string_view what,
                        const std::vector<int64_t>& lengths, Sharding sharding);

// Extreme positions of a rank: of each piece over the batch, and of each
// sequence over the pieces (keys past their length left out).
struct Extremes {
  std::vector<Range> pieces;
  std::vector<Range> sequences;
};

// `begins` are the positions of token 0 where positions are not given, one for
// all sequences or one for each.
Extremes FindExtremes(const std::vector<Piece>& pieces, const TokenIds& ids,
                      std::span<const int64_t> begins,
                      std::span<const int64_t> key_lengths);

// Collective. Fills in positions and segments of every rank's pieces; returns
// the extreme positions of each sequence over all ranks.
std::vector<Range> ShareRanges(const Group& group, PiecesByRank& pieces,
                               const Extremes& mine, const TokenIds& segments);

// Collective. Whether positions rise from token to token of each sequence, and
// of each of its segments, through the tokens of all ranks: the first
// `lengths[b]` of a sequence.
bool Rise(const Group& group, const PiecesByRank& pieces,
          const TokenIds& positions, const TokenIds& segments,
          std::span<const int64_t> lengths);

int64_t Total(const std::vector<int64_t>& lengths);

}  // namespace locus::ring

#endif  // LOCUS_RING_AGREEMENT_PIECES_H_

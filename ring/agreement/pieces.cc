#include "ring/agreement/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "locus/error.h"
#include "ring/agreement/agree.h"

namespace locus::ring {
namespace {

Range SegmentsOf(const Piece& piece, const TokenIds& ids) {
  Range range;
  for (int64_t id :
       ids.values.empty() ? std::vector<int64_t>{} : ids.Of(piece)) {
    range.Add(id);
  }
  return range;
}

}  // namespace

int64_t Total(const std::vector<int64_t>& lengths) {
  int64_t total = 0;
  for (int64_t length : lengths) total += length;
  return total;
}

PiecesByRank MakePieces(std::string_view what,
                        const std::vector<int64_t>& lengths,
                        Sharding sharding) {
  const int64_t total = Total(lengths);
  PiecesByRank ranks;
  int64_t first = 0;
  const int count = static_cast<int>(lengths.size());
  for (int r = 0; r < count; ++r) {
    const int64_t length = lengths[static_cast<size_t>(r)];
    std::vector<Chunk> chunks = {{.first = first, .count = length}};
    if (sharding != Sharding::kContiguous) {
      chunks = Shard(sharding, total, r, count);
    }
    std::vector<Piece> pieces;
    int64_t begin = 0;
    for (const Chunk& chunk : chunks) {
      pieces.push_back({.tokens = chunk, .begin = begin});
      begin += chunk.count;
    }
    if (begin != length) {
      throw Error(fmt::format(
          "{} sharding of {} {} over {} ranks gives rank {} {}, it holds {}",
          ShardingName(sharding), total, what, count, r, begin, length));
    }
    first += length;
    ranks.push_back(std::move(pieces));
  }
  return ranks;
}

Extremes FindExtremes(const std::vector<Piece>& pieces, const TokenIds& ids,
                      std::span<const int64_t> begins,
                      std::span<const int64_t> key_lengths) {
  Extremes extremes;
  extremes.sequences.resize(static_cast<size_t>(ids.batch));
  for (const Piece& piece : pieces) {
    Range all;
    for (int64_t b = 0; b < ids.batch; ++b) {
      const auto at = static_cast<size_t>(b);
      const Chunk& t = piece.tokens;
      const int64_t count =
          key_lengths.empty() ? t.count : CountBefore(t, key_lengths[at]);
      Range range;
      if (count > 0 && ids.values.empty()) {
        const int64_t first = begins[begins.size() == 1 ? 0 : at] + t.first;
        range.Add(first);
        range.Add(first + (count - 1) * t.stride);
      }
      const int64_t step = ids.PerSequence() ? ids.length : 0;
      for (int64_t i = 0; i < count && !ids.values.empty(); ++i) {
        range.Add(ids.values[static_cast<size_t>(b * step + piece.begin + i)]);
      }
      all.Add(range);
      extremes.sequences[at].Add(range);
    }
    extremes.pieces.push_back(all);
  }
  return extremes;
}

std::vector<Range> ShareRanges(const Group& group, PiecesByRank& pieces,
                               const Extremes& mine, const TokenIds& segments) {
  std::vector<int64_t> numbers;
  const auto add = [&numbers](const Range& range) {
    numbers.push_back(range.lo);
    numbers.push_back(range.hi);
  };
  const auto& own = pieces[static_cast<size_t>(group.rank())];
  for (size_t n = 0; n < own.size(); ++n) {
    add(mine.pieces[n]);
    add(SegmentsOf(own[n], segments));
  }
  for (const Range& range : mine.sequences) add(range);
  std::vector<Range> sequences(mine.sequences.size());
  const auto gathered = GatherNumbers(group, numbers);
  for (size_t r = 0; r < gathered.size(); ++r) {
    const int64_t* at = gathered[r].data();
    const auto next = [&at] {
      const Range range{.lo = at[0], .hi = at[1]};
      at += 2;
      return range;
    };
    for (Piece& piece : pieces[r]) {
      piece.positions = next();
      piece.segments = next();
    }
    for (Range& range : sequences) range.Add(next());
  }
  return sequences;
}

bool Rise(const Group& group, const PiecesByRank& pieces,
          const TokenIds& positions, const TokenIds& segments,
          std::span<const int64_t> lengths) {
  const int64_t total = std::ranges::max(lengths);
  std::vector<int64_t> numbers;
  const auto of = [](const TokenIds& ids, int64_t b, int64_t i) {
    const int64_t step = ids.PerSequence() ? ids.length : 0;
    return ids.values[static_cast<size_t>(b * step + i)];
  };
  for (int64_t b = 0; b < positions.batch; ++b) {
    for (int64_t i = 0; i < positions.length; ++i) {
      numbers.push_back(of(positions, b, i));
      numbers.push_back(segments.values.empty() ? 0 : of(segments, b, i));
    }
  }
  // (position, segment) of every token, in order.
  std::vector<std::pair<int64_t, int64_t>> tokens(
      static_cast<size_t>(positions.batch * total));
  const auto gathered = GatherNumbers(group, numbers);
  for (size_t r = 0; r < gathered.size(); ++r) {
    const int64_t* at = gathered[r].data();
    for (int64_t b = 0; b < positions.batch; ++b) {
      for (const Piece& piece : pieces[r]) {
        const Chunk& t = piece.tokens;
        for (int64_t i = 0; i < t.count; ++i, at += 2) {
          const int64_t token = t.first + i * t.stride;
          if (token >= total) continue;
          tokens[static_cast<size_t>(b * total + token)] = {at[0], at[1]};
        }
      }
    }
  }
  for (int64_t b = 0; b < positions.batch; ++b) {
    std::map<int64_t, int64_t> last;
    for (int64_t i = 0; i < lengths[static_cast<size_t>(b)]; ++i) {
      const auto [position, segment] =
          tokens[static_cast<size_t>(b * total + i)];
      const auto [at, first] = last.try_emplace(segment, position);
      if (!first && position <= at->second) return false;
      at->second = position;
    }
  }
  return true;
}

}  // namespace locus::ring

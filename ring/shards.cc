// Which tokens a rank holds.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "locus/error.h"
#include "locus/ring.h"
#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"contiguous", "zigzag",
                                                    "round-robin"};

// Range n of `count` equal ranges of `length` tokens; the first ranges have one
// more token if they do not divide evenly.
Chunk Stretch(int64_t length, int64_t n, int64_t count) {
  const int64_t size = length / count, rest = length % count;
  return {.first = n * size + std::min(n, rest),
          .count = size + (n < rest ? 1 : 0)};
}

}  // namespace

std::string_view ShardingName(Sharding sharding) {
  return kNames.at(static_cast<size_t>(sharding));
}

Sharding FindSharding(std::string_view name) {
  for (size_t n = 0; n < kNames.size(); ++n) {
    if (kNames.at(n) == name) return static_cast<Sharding>(n);
  }
  throw Error(
      fmt::format("there is no sharding '{}'; known values: contiguous, "
                  "zigzag, round-robin",
                  name));
}

std::vector<Chunk> Shard(Sharding sharding, int64_t length, int rank,
                         int ranks) {
  if (length < 0 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(fmt::format("rank {} of {} cannot hold a part of {} tokens",
                            rank, ranks, length));
  }
  switch (sharding) {
    case Sharding::kContiguous:
      return {Stretch(length, rank, ranks)};
    case Sharding::kZigzag:
      return {Stretch(length, rank, 2 * ranks),
              Stretch(length, 2 * ranks - 1 - rank, 2 * ranks)};
    case Sharding::kRoundRobin:
      break;
  }
  return {{.first = rank,
           .count = length / ranks + (rank < length % ranks ? 1 : 0),
           .stride = ranks}};
}

Tensor TakeShard(const Tensor& x, const std::vector<Chunk>& chunks) {
  if (x.rank() != 4) {
    throw Error(fmt::format("a tensor to shard must be [B, H, L, D], got {}",
                            x.Describe()));
  }
  int64_t tokens = 0;
  for (const Chunk& chunk : chunks) {
    const int64_t last = chunk.first + (chunk.count - 1) * chunk.stride;
    if (chunk.count > 0 && (chunk.first < 0 || last >= x.size(2))) {
      throw Error(fmt::format("{} has no tokens {} .. {}", x.Describe(),
                              chunk.first, last));
    }
    tokens += chunk.count;
  }
  Tensor taken =
      Tensor::Empty(x.dtype(), {x.size(0), x.size(1), tokens, x.size(3)});
  int64_t begin = 0;
  for (const Chunk& chunk : chunks) {
    CopyTokens(TokensOf(x, chunk),
               TokensOf(taken, {.first = begin, .count = chunk.count}));
    begin += chunk.count;
  }
  return taken;
}

}  // namespace locus::ring

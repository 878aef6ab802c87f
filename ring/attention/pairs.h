// Shared code of both passes: pairs of pieces, and the statistics of a call.
#ifndef LOCUS_RING_ATTENTION_PAIRS_H_
#define LOCUS_RING_ATTENTION_PAIRS_H_

#include <chrono>
#include <optional>
#include <vector>

#include "ring/blocks/operands.h"
#include "ring/transport/async_transport.h"

namespace locus::ring {

// Adds its lifetime in seconds to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() {
    total_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& total_;
  Clock::time_point start_ = Clock::now();
};

// Calls f(queries, keys) for every piece of queries and every one of `pieces`,
// pieces of the block's keys, that may see each other, trimmed to what is
// visible. Counts computed and skipped pairs.
template <typename F>
void ForEachPair(const Call& call, const std::vector<QueryPiece>& queries,
                 const Block& block, const std::vector<Piece>& pieces,
                 Stats& stats, const F& f) {
  for (const Piece& piece : pieces) {
    std::optional<KeyPiece> keys;  // made for the first pair that needs it
    for (const QueryPiece& q : queries) {
      if (!call.Sees(q.piece, piece)) {
        ++stats.pairs_skipped;
        continue;
      }
      ++stats.pairs_computed;
      if (!keys) keys = MakeKeyPiece(call, block, piece);
      if (CanTrim(call, q, *keys)) {
        f(Trimmed(call, q, *keys), Trimmed(call, *keys, q));
      } else {
        f(q, *keys);
      }
    }
  }
}

inline void Report(const AsyncTransport& transport, Stats stats,
                   Stats* wanted) {
  if (wanted == nullptr) return;
  stats.wait_seconds = transport.wait_seconds();
  stats.bytes_sent = transport.bytes_sent();
  *wanted = stats;
}

}  // namespace locus::ring

#endif  // LOCUS_RING_ATTENTION_PAIRS_H_

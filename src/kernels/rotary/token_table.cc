#include "kernels/rotary/token_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/rotary/angles.h"

namespace locus::kernels {

int64_t DecayOrigin(const Rotation& rotation, const Shape& shape) {
  const int64_t lo = shape.MinPosition(), hi = shape.MaxPosition();
  double steepest = 0.0;
  for (double d : rotation.log_decay) {
    steepest = std::max(steepest, std::abs(d));
  }
  // exp(80) = 5e34: a product of two such gains with ordinary q and k stays
  // finite, and what underflows is below 1e-30 of the score.
  if (steepest * static_cast<double>(hi - lo) / 2.0 > 80.0) {
    Fail(
        "a decaying rotation covers at most {:.0f} positions in float32, "
        "got {} .. {}",
        160.0 / steepest, lo, hi);
  }
  return lo + (hi - lo) / 2;
}

RotationTable::RotationTable(const Rotation& r,
                             std::span<const int64_t> positions, double sign,
                             int64_t origin, int threads) {
  const int64_t pairs = r.NumPairs();
  const int64_t count = static_cast<int64_t>(positions.size());
  cos.resize(static_cast<size_t>(count * pairs));
  sin.resize(cos.size());
  const CosSinRows rows(r, positions, threads);
  // The split depends on the lengths alone.
  constexpr int64_t kTokensPerTask = 256;
  ParallelFor(
      (count + kTokensPerTask - 1) / kTokensPerTask, threads, [&](int64_t n) {
        const int64_t first = n * kTokensPerTask;
        const int64_t some = std::min(kTokensPerTask, count - first);
        float* c = cos.data() + first * pairs;
        float* s = sin.data() + first * pairs;
        rows.Fill(positions.subspan(static_cast<size_t>(first),
                                    static_cast<size_t>(some)),
                  c, s);
        if (r.log_decay.empty()) return;
        for (int64_t i = 0; i < some; ++i) {
          const double steps = static_cast<double>(
              positions[static_cast<size_t>(first + i)] - origin);
          for (int64_t p = 0; p < pairs; ++p) {
            const auto gain = static_cast<float>(
                std::exp(sign * r.log_decay[static_cast<size_t>(p)] * steps));
            c[i * pairs + p] *= gain;
            s[i * pairs + p] *= gain;
          }
        }
      });
}

}  // namespace locus::kernels

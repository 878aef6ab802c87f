// Order and direction: how outputs change when tokens trade places.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/measures.h"

namespace locus::analysis {
namespace {

// Tokens that trade places: few, since attention is quadratic.
constexpr int64_t kTokens = 16;

// The deviation between attention of rearranged tokens (token t moves to place
// to[t]), restored to the old order, and attention of the original ones. Zero
// means that the order made no difference to any token.
double Rearranged(const Probe& probe, const std::vector<size_t>& to) {
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> places =
      g.Box(g.Sides(std::min(kTokens, probe.options().length)));
  const size_t n = places.size();
  const size_t width = static_cast<size_t>(probe.Width());
  const size_t dim = static_cast<size_t>(probe.options().head_dim);
  const Frame frame = probe.FrameOf(places);
  const std::vector<double> x =
      probe.Tokens(static_cast<int64_t>(n), /*stream=*/0);
  std::vector<double> moved(x.size());
  for (size_t t = 0; t < n; ++t) {
    std::copy_n(&x[t * width], width, &moved[to[t] * width]);
  }
  const std::vector<double> out = probe.Attend(frame, x, places);
  const std::vector<double> other = probe.Attend(frame, moved, places);
  std::vector<double> back(out.size());
  for (size_t h = 0; h < static_cast<size_t>(probe.options().heads); ++h) {
    for (size_t t = 0; t < n; ++t) {
      std::copy_n(&other[(h * n + to[t]) * dim], dim, &back[(h * n + t) * dim]);
    }
  }
  return RelativeDeviation(back, out);
}

size_t NumTokens(const Probe& probe) {
  const Geometry& g = probe.geometry();
  return g.Box(g.Sides(std::min(kTokens, probe.options().length))).size();
}

}  // namespace

Property Order(const Probe& probe) {
  // A fixed shuffle.
  const size_t n = NumTokens(probe);
  std::vector<size_t> to(n);
  for (size_t t = 0; t < n; ++t) to[t] = t;
  for (size_t t = n; t-- > 1;) std::swap(to[t], to[(t * 7 + 3) % (t + 1)]);
  const double change = Rearranged(probe, to);
  const bool sees = change > kSame;
  return {.name = "order",
          .question = "does the output change when tokens trade places?",
          .verdict = sees ? Verdict::kYes : Verdict::kNo,
          .value = change,
          .measure =
              "largest change of a token's output when all are "
              "shuffled, over the outputs' RMS (no mask)",
          .threshold = kSame,
          .sentence =
              sees ? fmt::format("Shuffling the tokens changes their outputs "
                                 "by up to {}.",
                                 RatioTo("their size", change))
                   : fmt::format("Shuffled tokens give the same outputs, "
                                 "shuffled, to within {} of their size: "
                                 "without a mask, order is invisible.",
                                 Shown(change))};
}

Property Direction(const Probe& probe) {
  const size_t n = NumTokens(probe);
  std::vector<size_t> to(n);
  for (size_t t = 0; t < n; ++t) to[t] = n - 1 - t;
  const double change = Rearranged(probe, to);
  const bool sees = change > kSame;
  return {.name = "direction",
          .question = "without a mask, is before told from after?",
          .verdict = sees ? Verdict::kYes : Verdict::kNo,
          .value = change,
          .measure =
              "largest change of a token's output when the sequence is "
              "reversed, over the outputs' RMS (no mask)",
          .threshold = kSame,
          .sentence =
              sees ? fmt::format("Reversing the sequence changes outputs by up "
                                 "to {}.",
                                 RatioTo("their size", change))
                   : fmt::format("A reversed sequence gives the same outputs, "
                                 "reversed, to within {} of their size: only a "
                                 "causal mask can tell before from after.",
                                 Shown(change))};
}

}  // namespace locus::analysis

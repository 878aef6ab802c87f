// Growth: the size of what position adds, the norms of vectors it acts on, and
// sizes far away.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/measures.h"
#include "analysis/strength.h"
#include "locus/error.h"
#include "locus/rotary.h"

namespace locus::analysis {
namespace {

// `count` positions (for an input encoding) or distances, evenly spread over
// [lowest, highest].
struct Range {
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t count = 0;
};

// The upper half of the range up to `reach`, where growth would show.
Range FarUpTo(int64_t reach) {
  return {.lowest = reach / 2, .highest = reach, .count = 64};
}

double LargestIn(const Probe& probe, Range range, bool future) {
  std::vector<int64_t> offsets;
  for (int64_t n = 0; n < range.count; ++n) {
    offsets.push_back(range.highest -
                      n * (range.highest - range.lowest) / range.count);
  }
  const Geometry& g = probe.geometry();
  const int64_t start = g.Origin();
  const auto at = [&](int64_t along) {
    std::vector<int64_t> by(g.NumAxes(), 0);
    by[0] = along;
    return g.Moved(start, by);
  };
  std::vector<int64_t> positions;
  for (int64_t o : offsets) positions.push_back(at(o));
  if (!probe.ActsOnInput()) positions.push_back(start);
  const Frame frame =
      probe.FrameOf(positions, future ? Offsets{-range.highest, -range.lowest}
                                      : Offsets{range.lowest, range.highest});
  double largest = 0.0;
  if (probe.ActsOnInput()) {
    for (const auto& [position, row] : frame.rows) {
      for (double e : row) largest = std::max(largest, std::abs(e));
    }
    return largest;
  }
  for (int64_t h = 0; h < probe.options().heads; ++h) {
    for (int64_t o : offsets) {
      const double c = future ? Contribution(frame.terms, h, start, at(o))
                              : Contribution(frame.terms, h, at(o), start);
      largest = std::max(largest, c);
    }
  }
  return largest;
}

}  // namespace

Property Bounded(const Probe& probe) {
  // Ten times the distance may cost at most a tenth more: a logarithm costs a
  // fifth more between these two.
  constexpr int64_t kFar = 100000, kFarther = 1000000;
  constexpr double kGrowth = 1.1;
  Property p = {.name = "bounded",
                .question = "does what position adds stay bounded?",
                .value = kNothing,
                .measure = probe.ActsOnInput()
                               ? "largest |E| up to position 10^6, over the "
                                 "largest up to 10^5"
                               : "largest amount that position can add to the "
                                 "logit of unit q and k 10^6 apart, over that "
                                 "10^5 apart",
                .threshold = kGrowth,
                .sentence = "Position adds nothing that could grow."};
  if (probe.TermsPresent().empty()) return p;
  const Geometry& g = probe.geometry();
  const int64_t side = g.Sides(probe.options().length)[0];
  const double inside = LargestIn(probe,
                                  {.lowest = 0,
                                   .highest = side - 1,
                                   .count = std::min<int64_t>(side, 4096)},
                                  /*future=*/false);
  const char* const what = probe.ActsOnInput()
                               ? "What is added to x"
                               : "What is added to a logit of unit q and k";
  try {
    const double far = LargestIn(probe, FarUpTo(kFar), /*future=*/false);
    const double farther =
        LargestIn(probe, FarUpTo(kFarther), /*future=*/false);
    p.value = far > 0.0 ? farther / far : 1.0;
    p.verdict = p.value <= kGrowth ? Verdict::kYes : Verdict::kNo;
    p.sentence = fmt::format(
        "{} is at most {} inside the trained length{} {} at 10^6, {} times "
        "as much as at 10^5.",
        what, Shown(inside),
        p.verdict == Verdict::kYes ? " and at most" : ", and grows to",
        Shown(farther), Shown(p.value));
    if (probe.ActsOnInput()) return p;
    const Frame frame = probe.FrameOf(std::vector<int64_t>{0, 1});
    if (p.verdict == Verdict::kNo && IsPenalty(frame.terms)) {
      p.sentence += " It is a penalty: far keys fade, nothing overflows.";
    }
    const double ahead = LargestIn(probe, FarUpTo(1000), /*future=*/true);
    if (p.verdict == Verdict::kYes && ahead > 2.0 * std::max(inside, farther)) {
      p.sentence += fmt::format(
          " It grows towards later keys (to {}, 1000 ahead): it is made for "
          "causal attention.",
          Shown(ahead));
    }
  } catch (const Error&) {
    // It cannot be measured that far out.
    p.verdict = Verdict::kYes;
    p.sentence = fmt::format(
        "Its table ends with the trained length. {} is at most {} there.", what,
        Shown(inside));
  }
  return p;
}

Property NormPreserving(const Probe& probe) {
  Property p = {
      .name = "norm-preserving",
      .question =
          "do the vectors that position acts on keep their "
          "length?",
      .value = kNothing,
      .measure = "largest relative change of the norm of x, q or k",
      .threshold = kSame,
      .sentence = "It acts on logits or values and leaves x, q and k alone."};
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> places =
      g.Box(g.Sides(std::min(kMostSites, probe.options().length)));
  const Frame frame = probe.FrameOf(places);
  const int64_t n = static_cast<int64_t>(places.size());
  std::vector<double> before, after;
  if (probe.ActsOnInput()) {
    before = probe.Tokens(n, /*stream=*/400);
    after = before;
    const size_t width = static_cast<size_t>(probe.Width());
    for (size_t t = 0; t < places.size(); ++t) {
      const std::vector<double>& row = frame.rows.at(places[t]);
      for (size_t d = 0; d < width; ++d) after[t * width + d] += row[d];
    }
  } else if (frame.terms.rotate) {
    const int64_t dim = probe.options().head_dim;
    before = Normal(n * dim, probe.options().seed + 8);
    after = RotatedRows(*frame.terms.rotate, before, dim, places);
  } else if (frame.terms.q_table || frame.terms.k_table) {
    // A table multiplied with q is a vector added to k, and vice versa.
    const BucketTable& table =
        frame.terms.q_table ? *frame.terms.q_table : *frame.terms.k_table;
    const int64_t dim = probe.options().head_dim;
    before = Normal(n * dim, probe.options().seed + 8);
    after = before;
    for (size_t t = 0; t < places.size(); ++t) {
      const int32_t bucket = table.buckets(places.back(), places[t]);
      for (int64_t d = 0; d < dim; ++d) {
        after[t * static_cast<size_t>(dim) + static_cast<size_t>(d)] +=
            table.rows.At(0, bucket, d);
      }
    }
  } else {
    if (probe.TermsPresent().empty()) p.sentence = "It acts on nothing.";
    return p;
  }
  const size_t dim = before.size() / places.size();
  p.value = 0.0;
  for (size_t t = 0; t < places.size(); ++t) {
    const double was = Rms(std::span(before).subspan(t * dim, dim));
    const double is = Rms(std::span(after).subspan(t * dim, dim));
    p.value = std::max(p.value, std::abs(is / was - 1.0));
  }
  p.verdict = p.value <= kSame ? Verdict::kYes : Verdict::kNo;
  const char* what = probe.ActsOnInput()   ? "x"
                     : frame.terms.rotate  ? "q and k"
                     : frame.terms.q_table ? "k"
                                           : "q";
  p.sentence =
      p.verdict == Verdict::kYes
          ? fmt::format(
                "The norms of {} change by at most {}: the map is orthogonal.",
                what, RatioTo("their size", p.value))
          : fmt::format("The norms of {} change by up to {}.", what,
                        RatioTo("their size", p.value));
  return p;
}

}  // namespace locus::analysis

// Uniqueness and continuity: distances between the profiles of positions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analysis/measures.h"

namespace locus::analysis {
namespace {

// The profiles of some positions, seen from one query.
struct Sites {
  std::vector<int64_t> positions;
  int64_t query = 0;
  std::vector<std::vector<double>> profiles;
};

Sites SitesAt(const Probe& probe, std::vector<int64_t> positions,
              int64_t query) {
  std::vector<int64_t> all = positions;
  all.push_back(query);
  const Frame frame = probe.FrameOf(all);
  auto profiles = probe.Profiles(frame, query, positions, /*stream=*/100);
  return {std::move(positions), query, std::move(profiles)};
}

std::string Place(const Probe& probe, const Sites& s, size_t n) {
  // An encoding of the input has positions; others are seen from a query, so a
  // key is described by its offset. On a grid, sites have coordinates.
  const Geometry& g = probe.geometry();
  if (!g.IsLine()) {
    return fmt::format("position ({})",
                       fmt::join(g.Coordinates(s.positions[n]), ", "));
  }
  if (probe.ActsOnInput()) return fmt::format("position {}", s.positions[n]);
  return fmt::format("offset {}", s.query - s.positions[n]);
}

}  // namespace

Property Unique(const Probe& probe) {
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> box =
      g.Box(g.Sides(std::min(kMostSites, probe.options().length)));
  const Sites s = SitesAt(probe, box, box.back());
  const size_t n = s.profiles.size();
  double least = INFINITY, sum = 0.0;
  size_t a = 0, b = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const double d = Distance(s.profiles[i], s.profiles[j]);
      sum += d;
      if (d < least) {
        least = d;
        a = i;
        b = j;
      }
    }
  }
  const double mean = sum / (static_cast<double>(n * (n - 1)) / 2.0);
  const double value = mean > 0.0 ? least / mean : 0.0;
  const bool unique = value > kSame;
  std::string sentence;
  if (mean == 0.0) {
    sentence =
        fmt::format("All positions look the same, {} apart.", Shown(value));
  } else if (unique) {
    sentence = fmt::format(
        "The closest two of {} positions are {} of the mean distance apart.", n,
        Shown(value));
  } else {
    sentence = fmt::format(
        "{} and {} look the same: they are {} of the mean distance apart.",
        Place(probe, s, b), Place(probe, s, a), Shown(value));
    sentence[0] = static_cast<char>(std::toupper(sentence[0]));
  }
  return {.name = "unique",
          .question = "does each position (or distance) look different?",
          .verdict = unique ? Verdict::kYes : Verdict::kNo,
          .value = value,
          .measure = "least distance between two positions, over the mean one",
          .threshold = kSame,
          .sentence = sentence};
}

Property Continuous(const Probe& probe) {
  // A step to the next position should be small relative to the whole range.
  constexpr double kStep = 0.5;
  // The lines through the origin along each axis; line a begins at starts[a].
  const Geometry& g = probe.geometry();
  std::vector<int64_t> positions, corner;
  std::vector<size_t> starts;
  for (size_t a = 0; a < g.NumAxes(); ++a) {
    const int64_t side =
        std::min({kMostSites, probe.options().length, g.Limit(a)});
    corner.push_back(side - 1);
    starts.push_back(positions.size());
    for (int64_t c = 0; c < side; ++c) {
      std::vector<int64_t> by(g.NumAxes(), 0);
      by[a] = c;
      positions.push_back(g.Moved(g.Origin(), by));
    }
  }
  const Sites s = SitesAt(probe, positions, g.Moved(g.Origin(), corner));
  double largest = 0.0, jump = 0.0;
  size_t where = 0;
  for (size_t i = 0; i < s.profiles.size(); ++i) {
    for (size_t j = i + 1; j < s.profiles.size(); ++j) {
      const double d = Distance(s.profiles[i], s.profiles[j]);
      largest = std::max(largest, d);
      const bool neighbours = j == i + 1 && !std::ranges::count(starts, j);
      if (neighbours && d > jump) {
        jump = d;
        where = i;
      }
    }
  }
  Property p = {.name = "continuous",
                .question = "do neighbouring positions look alike?",
                .value = kNothing,
                .measure =
                    "largest step between neighbours, over the largest "
                    "distance between any two positions",
                .threshold = kStep,
                .sentence = "All positions look the same: there are no steps."};
  if (largest == 0.0) return p;
  p.value = jump / largest;
  p.verdict = p.value < kStep ? Verdict::kYes : Verdict::kNo;
  p.sentence = fmt::format(
      "The largest step between neighbours, at {}, is {} of the largest "
      "distance of all.",
      Place(probe, s, where), Shown(p.value));
  if (p.verdict == Verdict::kNo && probe.IsTrainable()) {
    p.sentence += " Its values are trained: training may smooth them.";
  }
  return p;
}

}  // namespace locus::analysis

// Reach: how strongly distant keys count, and what happens past the trained
// length.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/measures.h"
#include "analysis/strength.h"
#include "locus/error.h"

namespace locus::analysis {
namespace {

// NaN if either is zero, since zero has no direction.
double Cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (size_t n = 0; n < a.size(); ++n) {
    ab += a[n] * b[n];
    aa += a[n] * a[n];
    bb += b[n] * b[n];
  }
  return ab / std::sqrt(aa * bb);
}

// Strength by distance 0 .. reach, one curve per head; for an encoding of the
// input a single curve: the cosine of E[m] and E[n].
std::vector<std::vector<double>> StrengthCurves(const Probe& probe,
                                                int64_t reach) {
  const Geometry& g = probe.geometry();
  const int64_t start = g.Origin();
  std::vector<int64_t> places;
  for (int64_t o = 0; o <= reach; ++o) {
    places.push_back(g.Moved(start, std::vector<int64_t>(g.NumAxes(), o)));
  }
  const Frame frame = probe.FrameOf(places);
  const int64_t m = places.back();
  if (probe.ActsOnInput()) {
    // The mean over every pair at this distance.
    std::vector<double> curve;
    for (int64_t o = 0; o <= reach; ++o) {
      double sum = 0.0, count = 0.0;
      for (int64_t n = 0; n + o <= reach; ++n) {
        const double cosine =
            Cosine(frame.rows.at(places[static_cast<size_t>(n)]),
                   frame.rows.at(places[static_cast<size_t>(n + o)]));
        if (std::isnan(cosine)) continue;
        sum += cosine;
        count += 1.0;
      }
      // Only the farthest pair can involve a zero row: repeat the previous
      // value.
      curve.push_back(count > 0.0 ? sum / count : curve.back());
    }
    return {curve};
  }
  std::vector<std::vector<double>> curves;
  for (int64_t h = 0; h < probe.options().heads; ++h) {
    std::vector<double> curve;
    for (int64_t o = 0; o <= reach; ++o) {
      const int64_t n = places[static_cast<size_t>(reach - o)];
      curve.push_back(Strength(frame.terms, h, m, n));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

// Means over the octaves 1, 2..3, 4..7, ... that fit in the curve.
std::vector<double> Octaves(const std::vector<double>& curve) {
  std::vector<double> means;
  for (size_t first = 1; 2 * first <= curve.size(); first *= 2) {
    double sum = 0.0;
    for (size_t o = first; o < 2 * first; ++o) sum += curve[o];
    means.push_back(sum / static_cast<double>(first));
  }
  return means;
}

// The shape of a curve's fall, from its last three octaves: each step of a line
// is twice the previous one, each step of a logarithm the same.
std::string ShapeOfFall(const std::vector<std::vector<double>>& octaves) {
  bool linear = true, logarithmic = true;
  for (const auto& o : octaves) {
    if (o.size() < 3) return "";
    const size_t n = o.size();
    const double ratio = (o[n - 1] - o[n - 2]) / (o[n - 2] - o[n - 3]);
    linear = linear && std::abs(ratio - 2.0) < 1e-6;
    logarithmic = logarithmic && std::abs(ratio - 1.0) < 0.15;
  }
  return linear ? ", linearly" : logarithmic ? ", like a logarithm" : "";
}

}  // namespace

Property Decays(const Probe& probe) {
  Property p = {
      .name = "decays",
      .question = "do distant keys weigh less?",
      .value = kNothing,
      .measure = probe.ActsOnInput()
                     ? "fall of the cosine of two embeddings from distance "
                       "1 to the farthest octave"
                     : "fall of the logit (bias, or bound for unit q and k) "
                       "from distance 1 to the farthest octave, mean of "
                       "heads",
      .threshold = kSame,
      .sentence = ""};
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> sides =
      g.Sides(g.IsLine() ? std::min<int64_t>(4096, probe.options().length)
                         : probe.options().length);
  const int64_t reach = *std::ranges::min_element(sides) - 1;
  const auto curves = StrengthCurves(probe, reach);
  std::vector<std::vector<double>> octaves;
  // Every octave of every head must fall: a random table is unlikely to.
  bool falls = true, flat = true;
  double fall = 0.0;
  for (const auto& curve : curves) {
    octaves.push_back(Octaves(curve));
    const auto& o = octaves.back();
    for (size_t n = 1; n < o.size(); ++n) {
      const double step = o[n - 1] - o[n];
      falls = falls && step > kSame * std::abs(o[0]);
      flat = flat && std::abs(step) <= kSame * std::abs(o[0]);
    }
    fall += (o.front() - o.back()) / static_cast<double>(curves.size());
  }
  if (octaves[0].size() < 2) {
    p.sentence = fmt::format("A reach of {} is too short to tell.", reach);
    return p;
  }
  const char* const what =
      probe.ActsOnInput() ? "The cosine of two embeddings" : "The logit";
  p.value = fall;
  p.verdict = falls ? Verdict::kYes : Verdict::kNo;
  if (falls) {
    p.sentence = fmt::format(
        "{} falls from octave to octave of the distance, by {} in all{}.", what,
        Shown(fall), ShapeOfFall(octaves));
  } else if (flat) {
    p.sentence =
        fmt::format("{} is the same at every distance: it falls by {} in all.",
                    what, Shown(fall));
  } else {
    p.sentence = fmt::format(
        "{} rises and falls with the distance; from the nearest octave to the "
        "farthest the fall is {}.",
        what, Shown(fall));
    if (probe.IsTrainable()) {
      p.sentence += " Its values are trained: training may teach it to fall.";
    }
  }
  return p;
}

Property PastLength(const Probe& probe) {
  Property p = {.name = "past-length",
                .question = "is it defined past the trained length?",
                .value = kNothing,
                .measure =
                    "share of neighbours past the length that it still "
                    "tells apart",
                .threshold = kNothing,
                .sentence = ""};
  const Geometry& g = probe.geometry();
  const int64_t length = probe.options().length;
  // Keys at least two lengths out, seen from a query more than one length
  // farther: neither these positions nor these offsets occurred in training.
  const std::vector<int64_t> box = g.Sides(std::min<int64_t>(64, length));
  const int64_t along = g.IsLine() ? length : g.Sides(length)[0];
  std::vector<int64_t> by(box.size(), 0);
  by[0] = 2 * along;
  std::vector<int64_t> keys;
  for (int64_t site : g.Box(box)) keys.push_back(g.Moved(site, by));
  by[0] = 4 * along;
  const int64_t query = g.Moved(g.Box(box).back(), by);
  std::vector<int64_t> all = keys;
  all.push_back(query);
  try {
    const Frame frame =
        probe.FrameOf(all, {query - keys.back(), query - keys.front()});
    const auto profiles = probe.Profiles(frame, query, keys, /*stream=*/500);
    int64_t apart = 0;
    for (size_t n = 1; n < profiles.size(); ++n) {
      const double size = Rms(profiles[n]);
      const double step = Distance(profiles[n], profiles[n - 1]);
      if (step > kSame * std::max(size, 1e-300)) ++apart;
    }
    p.value =
        static_cast<double>(apart) / static_cast<double>(profiles.size() - 1);
    p.verdict = Verdict::kYes;
    const std::string share =
        fmt::format("(share of neighbours told apart: {})", Shown(p.value));
    if (probe.TermsPresent().empty()) {
      p.sentence =
          fmt::format("Defined: it has no positions to run out of {}.", share);
    } else if (apart == 0) {
      p.sentence = fmt::format(
          "Defined, but saturated: past the length all positions look the same "
          "{}.",
          share);
    } else if (p.value < 1.0) {
      p.sentence = fmt::format(
          "Defined, but saturated: past the length some neighbours look the "
          "same {}.",
          share);
    } else {
      p.sentence = fmt::format(
          "Defined: positions past the length are served and told apart {}. "
          "Whether a trained model extrapolates is another question.",
          share);
    }
  } catch (const Error& e) {
    p.verdict = Verdict::kNo;
    p.sentence = fmt::format("Not defined: {}.", e.what());
  }
  return p;
}

}  // namespace locus::analysis

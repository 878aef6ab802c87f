// Shifts: of both tokens of a pair, of the sequence length around them, and of
// an embedding by a linear map.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "analysis/measures.h"
#include "locus/error.h"

namespace locus::analysis {
namespace {

// Number of pairs of tokens that are moved together.
constexpr int64_t kPairs = 32;

struct Pairs {
  std::vector<int64_t> q, k;
};

// Random pairs in the lower half of each side, which leaves half a side to
// move.
Pairs LowerHalfPairs(const Probe& probe, const std::vector<int64_t>& sides) {
  std::vector<int64_t> half;
  for (int64_t side : sides) half.push_back(std::max<int64_t>(side / 2, 1));
  const std::vector<int64_t> sites = probe.geometry().Box(half);
  const std::vector<double> random = Normal(2 * kPairs, probe.options().seed);
  const auto pick = [&](size_t n) {
    const double share = std::abs(random[n]) - std::floor(std::abs(random[n]));
    return sites[static_cast<size_t>(share *
                                     static_cast<double>(sites.size()))];
  };
  Pairs pairs;
  for (size_t n = 0; n < static_cast<size_t>(kPairs); ++n) {
    pairs.q.push_back(pick(2 * n));
    pairs.k.push_back(pick(2 * n + 1));
  }
  return pairs;
}

Pairs Moved(const Probe& probe, const Pairs& pairs,
            const std::vector<int64_t>& by) {
  Pairs moved = pairs;
  for (auto* side : {&moved.q, &moved.k}) {
    for (int64_t& p : *side) p = probe.geometry().Moved(p, by);
  }
  return moved;
}

// Deviation of the scores when both tokens of each pair move by `by`.
double DeviationUnder(const Probe& probe, const Pairs& pairs,
                      const std::vector<int64_t>& by) {
  const Pairs moved = Moved(probe, pairs, by);
  std::vector<int64_t> all;
  for (const auto* list : {&pairs.q, &pairs.k, &moved.q, &moved.k}) {
    all.insert(all.end(), list->begin(), list->end());
  }
  const Frame frame = probe.FrameOf(all);
  const std::vector<double> x = probe.Tokens(kPairs, /*stream=*/200);
  const std::vector<double> y = probe.Tokens(kPairs, /*stream=*/201);
  return RelativeDeviation(probe.PairScores(frame, x, moved.q, y, moved.k),
                           probe.PairScores(frame, x, pairs.q, y, pairs.k));
}

// Solves G M = B in place for symmetric positive definite G [n, n], B [n, m]:
// Cholesky, then two triangular solves. Both row-major.
void SolveSpd(std::vector<double>& g, std::vector<double>& b, size_t n,
              size_t m) {
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = j; i < n; ++i) {
      double sum = g[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= g[i * n + k] * g[j * n + k];
      g[i * n + j] = i == j ? std::sqrt(sum) : sum / g[j * n + j];
    }
  }
  for (size_t c = 0; c < m; ++c) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < i; ++k)
        b[i * m + c] -= g[i * n + k] * b[k * m + c];
      b[i * m + c] /= g[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) {
        b[i * m + c] -= g[k * n + i] * b[k * m + c];
      }
      b[i * m + c] /= g[i * n + i];
    }
  }
}

using Rows = std::vector<const std::vector<double>*>;

// Adds a ridge far below any true eigenvalue of G [n, n], for embeddings that
// do not span all their channels.
void AddRidge(std::vector<double>& g, size_t n) {
  double trace = 0.0;
  for (size_t i = 0; i < n; ++i) trace += g[i * n + i];
  for (size_t i = 0; i < n; ++i) {
    g[i * n + i] += 1e-12 * trace / static_cast<double>(n);
  }
}

// The matrix M [width, width] that minimises |X M - Y|^2, for rows X and Y:
// (X^T X + ridge) M = X^T Y.
std::vector<double> MapThroughChannels(const Rows& x, const Rows& y,
                                       size_t width) {
  std::vector<double> gram(width * width), map(width * width);
  for (size_t n = 0; n < x.size(); ++n) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) {
        gram[i * width + j] += (*x[n])[i] * (*x[n])[j];
        map[i * width + j] += (*x[n])[i] * (*y[n])[j];
      }
    }
  }
  AddRidge(gram, width);
  SolveSpd(gram, map, width, width);
  return map;
}

// The same for fewer rows than channels, M = X^T (X X^T + ridge)^-1 Y: X^T X
// would be singular, and the ridge would amplify rounding errors by 10^12.
std::vector<double> MapThroughRows(const Rows& x, const Rows& y, size_t width) {
  const size_t rows = x.size();
  std::vector<double> gram(rows * rows), weights, map(width * width);
  for (size_t n = 0; n < rows; ++n) {
    for (size_t m = 0; m < rows; ++m) {
      gram[n * rows + m] =
          std::inner_product(x[n]->begin(), x[n]->end(), x[m]->begin(), 0.0);
    }
    weights.insert(weights.end(), y[n]->begin(), y[n]->end());
  }
  AddRidge(gram, rows);
  SolveSpd(gram, weights, rows, width);
  for (size_t n = 0; n < rows; ++n) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) {
        map[i * width + j] += (*x[n])[i] * weights[n * width + j];
      }
    }
  }
  return map;
}

}  // namespace

Property Relative(const Probe& probe) {
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> sides =
      g.Sides(std::min(kMostSites, probe.options().length));
  const Pairs pairs = LowerHalfPairs(probe, sides);
  std::vector<int64_t> near, far;
  bool moves_far = false;
  for (size_t a = 0; a < sides.size(); ++a) {
    near.push_back(sides[a] / 2);
    far.push_back(g.IsFree(a) ? kFarShift : 0);
    moves_far = moves_far || g.IsFree(a);
  }
  const double by_near = DeviationUnder(probe, pairs, near);
  double by_far = kNothing;
  if (moves_far) {
    try {
      by_far = DeviationUnder(probe, pairs, far);
    } catch (const Error&) {
      // It does not support positions that far: judged by those it supports.
    }
  }
  const double worst = std::isnan(by_far) ? by_near : std::max(by_near, by_far);
  const bool relative = worst <= kSame;
  Property p = {.name = "relative",
                .question = "does a score depend on m - n only?",
                .verdict = relative ? Verdict::kYes : Verdict::kNo,
                .value = worst,
                .measure =
                    "largest change of a score when both tokens move "
                    "together, over the scores' RMS",
                .threshold = kSame,
                .sentence = ""};
  const char* const kNear = "half the length";
  const char* const kFar = "10^6 positions";
  if (probe.TermsPresent().empty()) {
    p.sentence =
        fmt::format("No position enters at all: a shift changes scores by {}.",
                    Shown(worst));
  } else if (relative) {
    p.sentence = fmt::format(
        "Moving both tokens by {} changes no score by more than {} of its "
        "size.",
        std::isnan(by_far) ? kNear : fmt::format("{} or {}", kNear, kFar),
        Shown(worst));
  } else if (by_near <= kSame) {
    p.sentence = fmt::format(
        "Inside the trained length scores depend on m - n only, but moving "
        "both tokens by {} changes them by {}.",
        kFar, RatioTo("their size", worst));
  } else {
    const bool farther = by_far > by_near;
    p.sentence =
        fmt::format("Moving both tokens by {} changes scores by up to {}",
                    farther ? kFar : kNear, RatioTo("their size", worst));
    if (!std::isnan(by_far)) {
      p.sentence += fmt::format(
          ", and moving them by {} by up to {}", farther ? kNear : kFar,
          RatioTo("their size", std::min(by_near, by_far)));
    }
    p.sentence += ".";
  }
  return p;
}

Property LengthInvariant(const Probe& probe) {
  const Geometry& g = probe.geometry();
  const std::vector<int64_t> sides =
      g.Sides(std::min(kMostSites, probe.options().length));
  const Pairs pairs = LowerHalfPairs(probe, sides);
  const std::vector<double> x = probe.Tokens(kPairs, /*stream=*/300);
  const std::vector<double> y = probe.Tokens(kPairs, /*stream=*/301);
  // Scores of the same pairs in a sequence `factor` times as long.
  const auto scores = [&](double factor) {
    const double side =
        static_cast<double>(g.IsLine() ? probe.options().length : sides[0]);
    std::vector<int64_t> all = pairs.q;
    all.insert(all.end(), pairs.k.begin(), pairs.k.end());
    std::vector<int64_t> end(sides.size(), 0);
    end[0] = static_cast<int64_t>(side * factor) - 1;
    all.push_back(g.Moved(g.Origin(), end));
    const Frame frame = probe.FrameOf(all);
    return probe.PairScores(frame, x, pairs.q, y, pairs.k);
  };
  const std::vector<double> base = scores(1.0);
  double worst = RelativeDeviation(scores(0.5), base);
  bool longer = true;
  try {
    worst = std::max(worst, RelativeDeviation(scores(4.0), base));
  } catch (const Error&) {
    longer = false;  // rejects a longer call: judged by the shorter one
  }
  const bool same = worst <= kSame;
  return {.name = "length-invariant",
          .question = "is a position the same at every sequence length?",
          .verdict = same ? Verdict::kYes : Verdict::kNo,
          .value = worst,
          .measure =
              "largest change of a score when the sequence around the "
              "pair gets longer, over the scores' RMS",
          .threshold = kSame,
          .sentence =
              same ? fmt::format("The same pairs score the same in sequences "
                                 "of {} the trained length, to within {} of "
                                 "their size.",
                                 longer ? "half, one and four times"
                                        : "half and all of",
                                 Shown(worst))
                   : fmt::format("The scores of the same pairs change by up to "
                                 "{} with the length of the sequence around "
                                 "them.",
                                 RatioTo("their size", worst))};
}

Property LinearShift(const Probe& probe) {
  Property p = {
      .name = "linear-shift",
      .question = "is a shift by k one linear map of E[pos]?",
      .value = kNothing,
      .measure =
          "error of the best linear map from E[pos] to "
          "E[pos + k] on positions not used to fit it, over "
          "the size of the move",
      .threshold = kSame,
      .sentence =
          "It adds no embedding to the input, so there is nothing to map."};
  if (!probe.ActsOnInput()) return p;
  const int64_t length = probe.options().length;
  const size_t width = static_cast<size_t>(probe.Width());
  // A small prime, which divides no period of a table or of binary digits.
  const int64_t k = std::min<int64_t>(7, length / 4);

  // Positions to fit on, then positions to test on. Over a range of 10^6 even
  // the slowest sinusoid makes many rotations, so the fit is well conditioned.
  int64_t fitted = 4 * static_cast<int64_t>(width);
  std::vector<int64_t> at;
  Frame frame;
  const auto spread = [&](int64_t range, int64_t count) {
    at.clear();
    const std::vector<double> random = Normal(count, probe.options().seed + 7);
    for (double r : random) {
      const double share = std::abs(r) - std::floor(std::abs(r));
      at.push_back(static_cast<int64_t>(share * static_cast<double>(range)));
    }
  };
  const auto load = [&] {
    std::vector<int64_t> all = at;
    for (int64_t n : at) all.push_back(n + k);
    frame = probe.FrameOf(all);
  };
  try {
    spread(kFarShift, 2 * fitted);
    load();
  } catch (const Error&) {
    // A table of limited length: fits on even positions, tests on odd ones.
    at.clear();
    for (int64_t parity : {0, 1}) {
      for (int64_t n = parity; n + k < length; n += 2) at.push_back(n);
      if (parity == 0) fitted = static_cast<int64_t>(at.size());
    }
    load();
  }

  const auto row = [&](size_t n, int64_t by) -> const std::vector<double>& {
    return frame.rows.at(at[n] + by);
  };
  Rows from, to;
  for (size_t n = 0; n < static_cast<size_t>(fitted); ++n) {
    from.push_back(&row(n, 0));
    to.push_back(&row(n, k));
  }
  const std::vector<double> map = from.size() < width
                                      ? MapThroughRows(from, to, width)
                                      : MapThroughChannels(from, to, width);
  double error = 0.0, move = 0.0;
  for (size_t n = static_cast<size_t>(fitted); n < at.size(); ++n) {
    const auto& x = row(n, 0);
    const auto& y = row(n, k);
    for (size_t j = 0; j < width; ++j) {
      double mapped = 0.0;
      for (size_t i = 0; i < width; ++i) mapped += x[i] * map[i * width + j];
      error += (mapped - y[j]) * (mapped - y[j]);
      move += (y[j] - x[j]) * (y[j] - x[j]);
    }
  }
  p.value = std::sqrt(error / move);
  p.verdict = p.value <= kSame ? Verdict::kYes : Verdict::kNo;
  p.sentence =
      p.verdict == Verdict::kYes
          ? fmt::format(
                "One matrix takes E[pos] to E[pos + {}] for every pos; "
                "its error is {} of the move.",
                k, Shown(p.value))
          : fmt::format(
                "No matrix takes E[pos] to E[pos + {}]: the best one "
                "misses by {}.",
                k, RatioTo("the move", p.value));
  return p;
}

}  // namespace locus::analysis

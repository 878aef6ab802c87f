#include "lab/report/statistics.h"

#include <algorithm>
#include <cmath>

#include "lab/tasks/random.h"

namespace locus::lab {
namespace {

constexpr int kReplicates = 1000;

// The 97.5th percentile of Student's t, by degrees of freedom from 1; the last
// value is used for more.
double StudentT(size_t freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  return freedom <= std::size(kTable) ? kTable[freedom - 1] : 2.04;
}

// How often each of `count` items is drawn in `count` draws with replacement.
std::vector<double> Draw(size_t count, Random& random) {
  std::vector<double> times(count);
  for (size_t n = 0; n < count; ++n) {
    times[static_cast<size_t>(random.Below(static_cast<int64_t>(count)))] += 1;
  }
  return times;
}

// The mean over seeds of the sums over tokens, weighted by the number of draws.
double WeightedMean(const Scores& scores, const std::vector<double>& seeds,
                    const std::vector<double>& blocks) {
  double mean = 0;
  double weight = 0;
  for (size_t s = 0; s < scores.size(); ++s) {
    if (seeds[s] == 0) continue;
    BlockSum whole;
    for (size_t b = 0; b < blocks.size(); ++b) {
      whole.sum += blocks[b] * scores[s][b].sum;
      whole.tokens += blocks[b] * scores[s][b].tokens;
    }
    mean += seeds[s] * whole.sum / whole.tokens;
    weight += seeds[s];
  }
  return mean / weight;
}

// `statistic` takes how often each seed is drawn, and draws blocks itself;
// without a random source, it uses every block once.
template <typename Statistic>
Interval Bootstrap(size_t seeds, size_t blocks, const Statistic& statistic) {
  const std::vector<double> every_seed(seeds, 1.0);
  const double mean = statistic(every_seed, nullptr);
  const size_t drawn = seeds > 1 ? seeds : blocks;
  if (drawn < 2) return {.mean = mean, .low = -INFINITY, .high = INFINITY};
  Random random("bootstrap", {seeds, blocks});
  double sum = 0;
  double squares = 0;
  for (int n = 0; n < kReplicates; ++n) {
    const std::vector<double> seed_draw =
        seeds > 1 ? Draw(seeds, random) : every_seed;
    const double value = statistic(seed_draw, &random) - mean;
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(drawn);
  const double variance =
      std::max(0.0, (squares - sum * sum / kReplicates) / (kReplicates - 1));
  const double half = StudentT(drawn - 1) * std::sqrt(variance * n / (n - 1));
  return {.mean = mean, .low = mean - half, .high = mean + half};
}

std::vector<double> DrawOrAll(size_t count, Random* random) {
  return random ? Draw(count, *random) : std::vector<double>(count, 1.0);
}

}  // namespace

Interval MeanInterval(const Scores& scores) {
  const size_t blocks = scores.front().size();
  return Bootstrap(scores.size(), blocks,
                   [&](const std::vector<double>& seeds, Random* random) {
                     return WeightedMean(scores, seeds,
                                         DrawOrAll(blocks, random));
                   });
}

Interval DifferenceInterval(const Scores& a, const Scores& b) {
  const size_t blocks_a = a.front().size();
  const size_t blocks_b = b.front().size();
  return Bootstrap(a.size(), std::min(blocks_a, blocks_b),
                   [&](const std::vector<double>& seeds, Random* random) {
                     const auto draw = DrawOrAll(blocks_a, random);
                     const double mean = WeightedMean(a, seeds, draw);
                     return mean -
                            WeightedMean(b, seeds,
                                         blocks_a == blocks_b
                                             ? draw
                                             : DrawOrAll(blocks_b, random));
                   });
}

}  // namespace locus::lab

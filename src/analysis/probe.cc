#include "analysis/probe.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "locus/reference.h"

namespace locus::analysis {

std::vector<double> Normal(int64_t count, uint64_t seed) {
  // The standard fixes the engine but not the distribution, hence Box-Muller.
  std::mt19937_64 engine(seed);
  const auto uniform = [&engine] {
    return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    value = radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  return values;
}

double Rms(std::span<const double> values) {
  double sum = 0.0;
  for (double v : values) sum += v * v;
  return values.empty() ? 0.0
                        : std::sqrt(sum / static_cast<double>(values.size()));
}

double Distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (size_t n = 0; n < a.size(); ++n) sum += (a[n] - b[n]) * (a[n] - b[n]);
  return std::sqrt(sum);
}

double RelativeDeviation(std::span<const double> a, std::span<const double> b) {
  double worst = 0.0;
  for (size_t n = 0; n < a.size(); ++n) {
    worst = std::max(worst, std::abs(a[n] - b[n]));
  }
  return worst == 0.0 ? 0.0 : worst / Rms(b);
}

Probe::Probe(const Encoding& encoding, const CheckOptions& options)
    : encoding_(encoding), options_(options), width_(options.head_dim) {
  const Terms terms =
      encoding.Lower(Shape::SelfAttention(options.heads, options.head_dim, 1))
          .terms;
  geometry_ = Geometry::Of(terms);
  names_ = TermNames(terms);
  if (terms.input_add) {
    acts_on_input_ = true;
    width_ = terms.input_add->table.size(1);
    widen_ = terms.input_add->widen;
  }
}

Frame Probe::FrameOf(std::span<const int64_t> positions,
                     Offsets offsets) const {
  Frame frame;
  const auto [lowest, highest] = std::ranges::minmax_element(positions);
  if (acts_on_input_) {
    // Row by row, so that far-apart positions cost no more.
    const Tensor rows = encoding_.Embed(positions);
    for (size_t n = 0; n < positions.size(); ++n) {
      std::vector<double>& row = frame.rows[positions[n]];
      row.resize(static_cast<size_t>(width_));
      for (int64_t d = 0; d < width_; ++d) {
        row[static_cast<size_t>(d)] = rows.At(n, d);
      }
    }
  }
  Shape shape = Shape::SelfAttention(options_.heads, options_.head_dim, 1);
  if (!acts_on_input_) {
    shape.min_q_pos = shape.min_k_pos = *lowest;
    shape.max_q_pos = shape.max_k_pos = *highest;
    shape.min_offset = geometry_.IsLine() ? offsets.lowest : *lowest - *highest;
    shape.max_offset =
        geometry_.IsLine() ? offsets.highest : *highest - *lowest;
  }
  frame.terms = encoding_.Lower(shape).terms;
  frame.terms.input_add.reset();
  Validate(frame.terms, shape);
  return frame;
}

std::vector<double> Probe::Tokens(int64_t n, uint64_t stream) const {
  std::vector<double> x =
      Normal(n * width_, options_.seed * 1000003 + 16 + stream);
  // Columns appended by concatenation hold only the position.
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t d = width_ - widen_; d < width_; ++d) {
      x[static_cast<size_t>(t * width_ + d)] = 0.0;
    }
  }
  return x;
}

Tensor Probe::Project(const Frame& frame, const std::vector<double>& tokens,
                      std::span<const int64_t> positions,
                      Projection which) const {
  const int64_t heads = options_.heads, dim = options_.head_dim;
  const int64_t n = static_cast<int64_t>(positions.size());
  std::vector<double> x = tokens;
  if (acts_on_input_) {
    for (int64_t t = 0; t < n; ++t) {
      const std::vector<double>& row =
          frame.rows.at(positions[static_cast<size_t>(t)]);
      for (int64_t d = 0; d < width_; ++d) {
        x[static_cast<size_t>(t * width_ + d)] += row[static_cast<size_t>(d)];
      }
    }
  }
  const std::vector<double> w =
      Normal(heads * dim * width_, options_.seed * 1000003 + which);
  const double unit = 1.0 / std::sqrt(static_cast<double>(width_));
  Tensor out = Tensor::Zeros(DType::kF64, {1, heads, n, dim});
  double* o = out.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t d = 0; d < dim; ++d) {
        const double* row = w.data() + (h * dim + d) * width_;
        double sum = 0.0;
        for (int64_t e = 0; e < width_; ++e) {
          sum += row[e] * x[static_cast<size_t>(t * width_ + e)];
        }
        o[(h * n + t) * dim + d] = unit * sum;
      }
    }
  }
  return out;
}

std::vector<double> Probe::PairScores(const Frame& frame,
                                      const std::vector<double>& q_tokens,
                                      std::span<const int64_t> q_pos,
                                      const std::vector<double>& k_tokens,
                                      std::span<const int64_t> k_pos) const {
  const Tensor q = Project(frame, q_tokens, q_pos, kQuery);
  const Tensor k = Project(frame, k_tokens, k_pos, kKey);
  AttentionOptions call;
  call.q_positions = q_pos;
  call.k_positions = k_pos;
  const reference::Scorer scores(q, k, frame.terms, call);
  std::vector<double> out;
  for (int64_t h = 0; h < options_.heads; ++h) {
    for (int64_t t = 0; t < q.size(2); ++t) {
      out.push_back(scores.At(0, h, t, t));
    }
  }
  return out;
}

std::vector<double> Probe::Attend(const Frame& frame,
                                  const std::vector<double>& tokens,
                                  std::span<const int64_t> positions) const {
  AttentionOptions call;
  call.q_positions = positions;
  call.k_positions = positions;
  return reference::Attention(Project(frame, tokens, positions, kQuery),
                              Project(frame, tokens, positions, kKey),
                              Project(frame, tokens, positions, kValue),
                              frame.terms, call)
      .out.ToVector();
}

std::vector<std::vector<double>> Probe::Profiles(
    const Frame& frame, int64_t q_pos, std::span<const int64_t> positions,
    uint64_t stream) const {
  std::vector<std::vector<double>> profiles(positions.size());
  if (acts_on_input_) {
    for (size_t n = 0; n < positions.size(); ++n) {
      profiles[n] = frame.rows.at(positions[n]);
    }
    return profiles;
  }
  // Enough queries that no two positions look the same by chance.
  constexpr int64_t kQueries = 4;
  const std::vector<int64_t> at(kQueries, q_pos);
  const Tensor q = Project(frame, Tokens(kQueries, stream), at, kQuery);
  std::vector<double> key = Tokens(1, stream + 1);
  std::vector<double> keys;
  for (size_t n = 0; n < positions.size(); ++n) {
    keys.insert(keys.end(), key.begin(), key.end());
  }
  const Tensor k = Project(frame, keys, positions, kKey);
  AttentionOptions call;
  call.q_positions = at;
  call.k_positions = positions;
  const reference::Scorer scores(q, k, frame.terms, call);
  for (int64_t h = 0; h < options_.heads; ++h) {
    for (size_t n = 0; n < positions.size(); ++n) {
      for (int64_t t = 0; t < kQueries; ++t) {
        profiles[n].push_back(scores.At(0, h, t, static_cast<int64_t>(n)));
      }
    }
  }
  if (!frame.terms.v_table) return profiles;
  const BucketTable& v = *frame.terms.v_table;
  for (size_t n = 0; n < positions.size(); ++n) {
    const int32_t bucket = v.buckets(q_pos, positions[n]);
    for (int64_t h = 0; h < v.rows.size(0); ++h) {
      for (int64_t d = 0; d < v.rows.size(2); ++d) {
        profiles[n].push_back(v.rows.At(h, bucket, d));
      }
    }
  }
  return profiles;
}

}  // namespace locus::analysis

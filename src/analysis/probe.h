// Random tokens, presented to an encoding at chosen positions.
//
//   q = (x + E[m]) W_q,  k = (x + E[n]) W_k,  v = (x + E[n]) W_v
//
// with x and W random, and E zero unless the encoding acts on the input. The
// reference then applies the encoding's terms, so every check sees exactly what
// a model would.
#ifndef LOCUS_SRC_ANALYSIS_PROBE_H_
#define LOCUS_SRC_ANALYSIS_PROBE_H_

#include <map>
#include <span>
#include <vector>

#include "analysis/geometry.h"
#include "locus/check.h"
#include "locus/encoding.h"

namespace locus::analysis {

// An encoding lowered once for a set of positions.
struct Frame {
  Terms terms = {};                                  // without input_add
  std::map<int64_t, std::vector<double>> rows = {};  // E[position], if any
};

struct Offsets {
  int64_t lowest = 0;
  int64_t highest = 0;
};

class Probe {
 public:
  Probe(const Encoding& encoding, const CheckOptions& options);

  const CheckOptions& options() const { return options_; }
  const Geometry& geometry() const { return geometry_; }
  // Whether the encoding acts on the input.
  bool ActsOnInput() const { return acts_on_input_; }
  bool IsTrainable() const { return !encoding_.Params().empty(); }
  // Width of x.
  int64_t Width() const { return width_; }
  // The names of the terms that are present, as in TermNames.
  const std::vector<std::string>& TermsPresent() const { return names_; }

  // Lowers for these positions and offsets m - n (on a line; otherwise for all
  // offsets). Throws Error if the encoding does not support them.
  Frame FrameOf(std::span<const int64_t> positions, Offsets offsets) const;
  // The same for every offset within the trained length.
  Frame FrameOf(std::span<const int64_t> positions) const {
    return FrameOf(positions, {1 - options_.length, options_.length - 1});
  }

  // Standard normal x [n, Width()]; `stream` selects one of the seed's streams.
  std::vector<double> Tokens(int64_t n, uint64_t stream) const;

  // The logit of query token t at q_pos[t] and key token t at k_pos[t], for
  // each head: [heads * n].
  std::vector<double> PairScores(const Frame& frame,
                                 const std::vector<double>& q_tokens,
                                 std::span<const int64_t> q_pos,
                                 const std::vector<double>& k_tokens,
                                 std::span<const int64_t> k_pos) const;
  // Attention of tokens at positions to each other, without a mask: [heads * n
  // * head_dim].
  std::vector<double> Attend(const Frame& frame,
                             const std::vector<double>& tokens,
                             std::span<const int64_t> positions) const;
  // The profile of each key position, one vector per position: its row E, or if
  // there is none, the logits of a few random queries at `q_pos` with the same
  // key at that position, and the value that the position adds.
  std::vector<std::vector<double>> Profiles(const Frame& frame, int64_t q_pos,
                                            std::span<const int64_t> positions,
                                            uint64_t stream) const;

 private:
  enum Projection : uint64_t { kQuery = 1, kKey = 2, kValue = 3 };
  Tensor Project(const Frame& frame, const std::vector<double>& tokens,
                 std::span<const int64_t> positions, Projection which) const;

  const Encoding& encoding_;
  CheckOptions options_;
  Geometry geometry_;
  std::vector<std::string> names_;
  bool acts_on_input_ = false;
  int64_t width_ = 0;
  int64_t widen_ = 0;
};

// Standard normal numbers, the same on every platform.
std::vector<double> Normal(int64_t count, uint64_t seed);

double Rms(std::span<const double> values);
double Distance(std::span<const double> a, std::span<const double> b);
// The largest |a - b| relative to the RMS of b; 0 if both are all zeros.
double RelativeDeviation(std::span<const double> a, std::span<const double> b);

}  // namespace locus::analysis

#endif  // LOCUS_SRC_ANALYSIS_PROBE_H_

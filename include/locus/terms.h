// The terms through which position enters attention, and their algebra.
//
// With query i at position m, key j at position n, head h, and b = b(m - n) the
// bucket of the offset:
//
//   s_ij = scale g[h, m] ( rot(q_i).rot(k_j) + a_i.c_j + r_i.Tq[b]
//                          + k_j.Tk[b] ) + B[h, b] + K[h, j] + M[h, i, j]
//   p_ij = exp(cap(s_ij)) / ( exp(z_h) + sum_j exp(cap(s_ij)) )
//   o_i  = unrot_m( sum_j p_ij (rot_n(v_j) + Tv[b]) )
//
// and, before the projections that make q, k and v,  x_i += E[m].
//
// Conventions:
//  * Offsets are query position minus key position, m - n.
//  * Tables are multiplied with unrotated q and k.
//  * `scale` multiplies dot products and tables, never a bias.
//  * The soft cap applies to the complete score s, biases included.
//
// Terms holds everything that depends on position. The key bias K, the pair
// bias M, the sink z_h and the left operand r of the query table (default: q)
// are operands of a call; see AttentionOptions.
//
// An encoding is a front end that lowers to these terms; the reference and the
// kernels execute them and know no encoding by name.
#ifndef LOCUS_TERMS_H_
#define LOCUS_TERMS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "locus/api.h"
#include "locus/tensor.h"

namespace LOCUS_API locus {

// -------------------------------------------------------------- positions

// Positions must be in this range, so that the offset m - n of any two, and a
// few steps beyond it, fits in an int64.
inline constexpr int64_t kLowestPosition =
    std::numeric_limits<int64_t>::min() / 4;
inline constexpr int64_t kHighestPosition =
    std::numeric_limits<int64_t>::max() / 4;

// ---------------------------------------------------------------- buckets

// A special token such as [CLS]: pairs that involve it have buckets of their
// own instead of the bucket of their offset.
struct SpecialPosition {
  int64_t position = 0;
  int32_t as_query = 0;  // the special token attends
  int32_t as_key = 0;    // the special token is attended to
  int32_t as_both = 0;   // it attends to itself
};

// Raster positions origin + y * width + x of a 2-D window, mapped to
// y * stride + x so that one integer offset determines (dy, dx).
struct Grid {
  int64_t width = 0;
  int64_t stride = 0;
  int64_t origin = 0;
};

// Maps an offset m - n to a bucket. The map is piecewise linear over integers,
// so that every int64 offset is mapped exactly, by integer comparisons alone.
struct BucketMap {
  // bucket = first_bucket + step * (offset - start), from `start` up to the
  // next piece. `step` is -1, 0 or 1; pieces are sorted by `start`.
  struct Piece {
    int64_t start = 0;
    int32_t first_bucket = 0;
    int32_t step = 0;
  };

  // The least and greatest offset between two valid positions.
  static constexpr int64_t kLowest = kLowestPosition - kHighestPosition;
  static constexpr int64_t kHighest = kHighestPosition - kLowestPosition;

  int32_t count = 0;              // number of buckets, special ones included
  int64_t min_offset = kLowest;   // the domain is [min_offset, max_offset]:
  int64_t max_offset = kHighest;  // offsets outside it have no bucket
  std::vector<Piece> pieces;
  std::optional<Grid> grid;
  std::optional<SpecialPosition> special;

  // One bucket for every offset.
  static BucketMap Constant();
  // bucket = offset - lo, for offsets in [lo, hi] only.
  static BucketMap Identity(int64_t lo, int64_t hi);
  // bucket = clip(offset, lo, hi) - lo (Shaw).
  static BucketMap Clip(int64_t lo, int64_t hi);
  // T5: exact near zero, then logarithmic up to `max_distance`. Bidirectional
  // maps use the upper half of the buckets for keys after the query.
  static BucketMap T5(int64_t num_buckets, int64_t max_distance,
                      bool bidirectional);
  // DeBERTa-v2: exact up to position_buckets / 2 (rounded down), then
  // logarithmic up to `max_relative_positions`;
  // bucket = clip(B(m - n) + span, 0, 2 span - 1).
  // position_buckets = 0 means no logarithm: span = max_relative_positions.
  static BucketMap Deberta(int64_t position_buckets,
                           int64_t max_relative_positions);
  // Swin: bucket = (dy + height - 1) * (2 width - 1) + dx + width - 1.
  static BucketMap Window2D(int64_t height, int64_t width);

  // The bucket of a pair, whose offset must be in the domain (not checked).
  int32_t operator()(int64_t q_pos, int64_t k_pos) const;
  // The bucket of an offset, ignoring special positions and the grid.
  int32_t OfOffset(int64_t offset) const;
  // The position that offsets are computed from: y * stride + x on a grid, the
  // position itself otherwise.
  int64_t Respace(int64_t position) const {
    if (!grid) return position;
    const int64_t p = position - grid->origin;
    return p / grid->width * grid->stride + p % grid->width;
  }
  // The same map with buckets for a special token appended: one as query, one
  // as key and, if `both`, one for its pair with itself, which otherwise takes
  // the bucket as query.
  BucketMap WithSpecial(int64_t position, bool both) const;

  // One line of text for `locus show` and messages.
  std::string Describe() const;
};

// ------------------------------------------------------------ the terms

// x_i += E[m] before the projections. `table` is [positions, model_dim]; row 0
// is for position `first_position`. `widen` zero columns are appended to x
// first, so that a concatenation is an addition in the wider space.
struct InputAdd {
  Tensor table = {};
  int64_t first_position = 0;
  int64_t widen = 0;
};

// Which channels form a rotated pair p, counted from `first_channel`:
// interleaved (2p, 2p + 1) or halves (p, p + rotary_dim / 2).
enum class PairLayout : uint8_t { kInterleaved, kHalves };

// How pos * theta is evaluated. kExact: in float64 from the integer position.
// kFloat32: in float32 throughout, as in Hugging Face's code.
enum class AngleMode : uint8_t { kExact, kFloat32 };

// One coordinate of a position: (pos / divisor) % modulus + offset, where
// modulus 0 means no modulus. Scale factors belong in the frequencies: for
// (y + 1/2) / height, use offset 1/2 and divide the frequencies by height.
struct Axis {
  int64_t divisor = 1;
  int64_t modulus = 0;
  double offset = 0.0;
};

// Positions first, first + step, first + 2 step, ...
struct TextPositions {
  int64_t first = 0;
  int64_t step = 1;
};

// Rotates pair p of q and k by an angle,
//   (a, b) -> gain * (a cos - b sin, a sin + b cos),
// where the angle is the coordinate on one axis times a frequency, or a sum
// over all axes ("mixed"):
//   coordinate(axis[p]) * theta[p]    or    sum_a coordinate(a) * theta[p, a].
// With `log_decay` (xPos), the dot product of pair p is also multiplied by
// exp(log_decay[p] * (m - n)).
struct Rotation {
  PairLayout layout = PairLayout::kInterleaved;
  int64_t rotary_dim = 0;     // channels that rotate, 2 per pair
  int64_t first_channel = 0;  // the rest pass through unchanged
  // Radians per position: [heads, rotary_dim / 2], or, if mixed,
  // [heads, rotary_dim / 2, axes].
  std::vector<double> theta = {};
  // 1: all heads share theta. Otherwise one set of frequencies per key head,
  // shared by the query heads of its group, so that a key is rotated only once.
  int64_t heads = 1;
  std::vector<int32_t> axis = {};  // [rotary_dim / 2]; empty: all on axis 0
  std::vector<Axis> axes = {};     // empty: one axis, the position itself
  // Axes apply to position - origin. Tokens before the origin, such as [CLS],
  // are not rotated: their angles are 0. Empty: 0, and every token is rotated.
  std::optional<int64_t> origin = {};
  // Positions from here on are packed (see PackPosition) and decoded by `axes`;
  // those below are text, whose coordinates all equal the position. 0: `axes`
  // decode every position.
  int64_t packed_from = 0;
  std::vector<double> log_decay = {};  // [rotary_dim / 2]; empty: none
  double gain = 1.0;                   // multiplies cos and sin for q and for k
  AngleMode angles = AngleMode::kExact;
  bool trains = false;  // the backward pass returns the gradient of theta

  int64_t NumPairs() const { return rotary_dim / 2; }
  int64_t NumAxes() const {
    return axes.empty() ? 1 : static_cast<int64_t>(axes.size());
  }
  // Whether every pair rotates by all axes.
  bool Mixed() const {
    return theta.size() > static_cast<size_t>(heads * NumPairs());
  }
  // The same rotation with only the frequencies of one key head.
  Rotation OfHead(int64_t kv_head) const;
  // The frequencies of a key head: [rotary_dim / 2], or [.., axes] if mixed.
  std::span<const double> ThetaOf(int64_t kv_head) const {
    const size_t count = theta.size() / static_cast<size_t>(heads);
    const size_t row = heads == 1 ? 0 : static_cast<size_t>(kv_head);
    return std::span(theta).subspan(row * count, count);
  }
  // The two channels of pair p.
  int64_t FirstOfPair(int64_t p) const {
    return first_channel + (layout == PairLayout::kInterleaved ? 2 * p : p);
  }
  int64_t SecondOfPair(int64_t p) const {
    return FirstOfPair(p) +
           (layout == PairLayout::kInterleaved ? 1 : rotary_dim / 2);
  }
  // The axis that pair p rotates by, unless the axes are mixed.
  int64_t AxisOf(int64_t p) const {
    return axis.empty() ? 0 : axis[static_cast<size_t>(p)];
  }
  bool Rotates(int64_t position) const {
    return !origin || position >= *origin;
  }
  // The coordinate of a rotated position on axis `a`, without the axis offset.
  int64_t Coordinate(int64_t a, int64_t position) const;
  // The same with the axis offset; 0 if the position is not rotated.
  double Shifted(int64_t a, int64_t position) const;
  // The positions of text that follows tokens at `positions`: one after the
  // last, or, if that is packed, with every coordinate one above the largest
  // coordinate so far.
  TextPositions After(std::span<const int64_t> positions) const;
  // Writes cosines and sines of one position for a key head, times `gain`, to
  // cos and sin, [rotary_dim / 2] each.
  void CosSin(int64_t position, double* cos, double* sin,
              int64_t kv_head = 0) const;
  // A hash of the rotation: keys cached under one id must not be attended by
  // queries rotated under another.
  uint64_t Id() const;
};

// Values rotated by the position of the key. If `relative`, the output is
// rotated back by the position of the query, so that it depends on m - n
// (DeepSeek-V4); otherwise it depends on n (RoFormer's rotary_value). The
// rotation preserves norms: no gain, no decay, and frequencies do not train.
struct ValueRotation {
  Rotation rotation = {};
  bool relative = true;
};

// a_i.c_j, where a and c are the rows of the positions of i and j:
// [heads or 1, positions, extra_dim], with row 0 for `first_position`.
struct ExtraDot {
  Tensor q_rows = {};
  Tensor k_rows = {};
  int64_t first_position = 0;
};

// One row per bucket: [heads or 1, buckets, head_dim], with query heads.
struct BucketTable {
  Tensor rows = {};
  BucketMap buckets = {};
};

// B[h, b] from a table [heads or 1, buckets].
struct BiasTable {
  Tensor values = {};
  BucketMap buckets = {};
};

// B = -past[h] * max(m - n, 0) - future[h] * max(n - m, 0), a closed form that
// kernels evaluate in registers.
struct BiasRamp {
  std::vector<double> past = {};    // [heads]
  std::vector<double> future = {};  // [heads]
};

// A piecewise-linear function of a normalised distance (FIRE):
//   x = u(|m - n|) * g(m)        B = base[h, s] + slope[h, s] * x
// where s is the number of `knots` <= x. u is tabulated by distance and g by
// query position, so memory grows linearly with the length.
struct BiasProfile {
  std::vector<double> distance = {};  // u: [max_distance + 1]
  std::vector<double> row_gain = {};  // g: entry 0 is for `first_position`
  int64_t first_position = 0;
  std::vector<double> knots = {};  // [S - 1] ascending
  Tensor base = {};                // [heads, S] f64
  Tensor slope = {};               // [heads, S] f64

  // The s of x.
  size_t Segment(double x) const;
};

using Bias = std::variant<BiasTable, BiasRamp, BiasProfile>;

// scale * g[h, m]: a constant, times a factor per head and query position.
struct Scale {
  double scale = 1.0;
  // g: [heads or 1, positions], column 0 for `first_position`; absent: 1.
  Tensor rows = {};
  int64_t first_position = 0;

  double At(int64_t h, int64_t q_pos) const {
    if (!rows.defined()) return scale;
    return scale * rows.At(rows.size(0) == 1 ? 0 : h, q_pos - first_position);
  }
};

// What an encoding lowers to, in the order of computation.
struct Terms {
  std::optional<InputAdd> input_add = {};
  Scale scale = {};
  std::optional<Rotation> rotate = {};
  std::optional<ExtraDot> extra_dot = {};
  std::optional<BucketTable> q_table = {};
  std::optional<BucketTable> k_table = {};
  std::optional<Bias> bias = {};
  std::optional<BucketTable> v_table = {};
  std::optional<ValueRotation> rotate_values = {};
};

// --------------------------------------------------------------- gradients

struct RotationGrads {
  std::vector<double> theta = {};  // as Rotation::theta
};

struct ExtraDotGrads {
  Tensor q_rows = {};
  Tensor k_rows = {};
};

struct BiasTableGrads {
  Tensor values = {};
};

struct BiasRampGrads {
  std::vector<double> past = {};
  std::vector<double> future = {};
};

struct BiasProfileGrads {
  std::vector<double> distance = {};
  std::vector<double> row_gain = {};
  Tensor base = {};
  Tensor slope = {};
};

using BiasGrads = std::variant<BiasTableGrads, BiasRampGrads, BiasProfileGrads>;

// dL/d(term), with the shapes of the terms. Mirrors Terms; terms without
// trainable numbers (rotations that do not train) have no gradient.
// `input_add` is filled in by the owner of x: attention never sees x.
struct TermGrads {
  Tensor input_add = {};
  Tensor scale = {};  // of its rows
  std::optional<RotationGrads> rotate = {};
  std::optional<ExtraDotGrads> extra_dot = {};
  Tensor q_table = {};
  Tensor k_table = {};
  std::optional<BiasGrads> bias = {};
  Tensor v_table = {};
};

// Zero gradients with the shapes of `terms`.
TermGrads ZeroGrads(const Terms& terms);

// ------------------------------------------------------------- operations

// What an encoding needs to know about a call: sizes, and the ranges of
// positions and offsets among the visible pairs.
struct Shape {
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  std::optional<int64_t> value_dim = {};  // of v; empty: head_dim
  std::optional<double> scale = {};  // the caller's; empty: the encoding's own
  int64_t min_q_pos = 0;
  int64_t max_q_pos = 0;
  int64_t min_k_pos = 0;
  int64_t max_k_pos = 0;
  int64_t min_offset = 0;
  int64_t max_offset = 0;
  int64_t table_dim = 0;  // of the query table's left operand; 0: head_dim
  bool causal = false;
  bool windowed = false;
  bool by_index = false;  // causality and window compare indices, not positions
  bool rising = true;     // positions increase within every sequence

  // Positions 0 .. length - 1 on both sides; causal sees offsets >= 0 only.
  static Shape SelfAttention(int64_t heads, int64_t head_dim, int64_t length,
                             bool causal = false);

  int64_t MinPosition() const { return std::min(min_q_pos, min_k_pos); }
  int64_t MaxPosition() const { return std::max(max_q_pos, max_k_pos); }
  // The caller's scale, or 1 / sqrt(factor * head_dim).
  double ScaleOr(double factor = 1.0) const;
};

// Llama 4's temperature: a factor by query position m,
// 1 + beta ln(1 + floor((m + shift) / span)); beta = 0: none.
struct QueryTemperature {
  double beta = 0.0;
  int64_t shift = 0;
  int64_t span = 1;

  double At(int64_t q_pos) const;
  // Sets scale.rows to the factor for the query positions of a call.
  void Set(const Shape& shape, Scale& scale) const;
};

// Throws Error if a term does not match the call: wrong sizes, an offset
// without a bucket, a position without a row.
void Validate(const Terms& terms, const Shape& shape);

// A description with one line per term, with sizes and numbers.
std::string Describe(const Terms& terms);

// The names of the terms present, in order: {"rotate", "bias"}.
std::vector<std::string> TermNames(const Terms& terms);

// The bias of head `h` for one pair.
double BiasAt(const Bias& bias, int64_t h, int64_t q_pos, int64_t k_pos);

}  // namespace locus

#endif  // LOCUS_TERMS_H_

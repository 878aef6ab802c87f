// The places where position enters attention, and their algebra.
//
// With i a query, j a key, h a head, m and n their positions, and b = b(m - n)
// a bucket of the offset:
//
//   s_ij = scale g[h, m] ( rot(q_i).rot(k_j) + a_i.c_j + r_i.Tq[b]
//                          + k_j.Tk[b] ) + B[h, b] + K[h, j] + M[h, i, j]
//   p_ij = exp(cap(s_ij)) / ( exp(z_h) + sum_j exp(cap(s_ij)) )
//   o_i  = unrot_m( sum_j p_ij (rot_n(v_j) + Tv[b]) )
//
// and, before the projections that make q, k and v,  x_i += E[m].
//
// Fixed once, here:
//  * Offsets are query position minus key position, m - n.
//  * Tables see unrotated q and k.
//  * `scale` multiplies dot products and tables, never a bias.
//  * Soft-capping sees the whole of s, biases included.
//
// Position enters by what is in Terms. The biases K per key and M per pair, the
// sink z_h and the table's own left operand r (else q) are operands of a call;
// see AttentionOptions.
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

// Positions of tokens lie in this range, so that the offset m - n of any two,
// and a few steps beyond it, fit an int64.
inline constexpr int64_t kLowestPosition =
    std::numeric_limits<int64_t>::min() / 4;
inline constexpr int64_t kHighestPosition =
    std::numeric_limits<int64_t>::max() / 4;

// ---------------------------------------------------------------- buckets

// A token that stands outside the geometry, such as [CLS]: pairs that touch it
// take a bucket of their own instead of the bucket of their offset.
struct SpecialPosition {
  int64_t position = 0;
  int32_t as_query = 0;  // the special token attends
  int32_t as_key = 0;    // the special token is attended to
  int32_t as_both = 0;   // it attends to itself
};

// Raster positions origin + y * width + x of a 2-D window, respaced to
// y * stride + x so that one integer offset determines (dy, dx).
struct Grid {
  int64_t width = 0;
  int64_t stride = 0;
  int64_t origin = 0;
};

// Maps an offset m - n to a bucket: piecewise linear in integers, so that any
// int64 offset is resolved exactly, by comparing it with integer thresholds.
struct BucketMap {
  // bucket = first_bucket + step * (offset - start), from `start` up to the
  // next piece. `step` is -1, 0 or 1; pieces are sorted by `start`.
  struct Piece {
    int64_t start = 0;
    int32_t first_bucket = 0;
    int32_t step = 0;
  };

  // The offsets that occur between two positions.
  static constexpr int64_t kLowest = kLowestPosition - kHighestPosition;
  static constexpr int64_t kHighest = kHighestPosition - kLowestPosition;

  int32_t count = 0;              // number of buckets, special ones included
  int64_t min_offset = kLowest;   // offsets outside [min_offset, max_offset]
  int64_t max_offset = kHighest;  // have no bucket
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
  // maps give the upper half of the buckets to keys after the query.
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

  // The bucket of a pair. The pair must be in the domain.
  int32_t operator()(int64_t q_pos, int64_t k_pos) const;
  // The bucket of an offset, special positions and grid aside.
  int32_t OfOffset(int64_t offset) const;
  // The position that offsets are taken of: respaced on a grid.
  int64_t Respace(int64_t position) const {
    if (!grid) return position;
    const int64_t p = position - grid->origin;
    return p / grid->width * grid->stride + p % grid->width;
  }
  // The same map with buckets of their own, after the others, for a special
  // token: as query, as key and (if `both`) to itself, else as query.
  BucketMap WithSpecial(int64_t position, bool both) const;

  std::string Describe() const;
};

// ------------------------------------------------------------ the terms

// x_i += E[m] before the projections. `table` is [positions, model_dim] and row
// 0 belongs to position `first_position`. `widen` zero columns are appended to
// x first: a concatenation is an addition in the wider space.
struct InputAdd {
  Tensor table = {};
  int64_t first_position = 0;
  int64_t widen = 0;
};

// Which channels form a rotated pair, counted from `first_channel`:
// interleaved (2p, 2p + 1) or halves (p, p + rotary_dim / 2).
enum class PairLayout : uint8_t { kInterleaved, kHalves };

// How pos * theta is evaluated. kExact: in float64, from the integer position.
// kFloat32: in float32 throughout, as the Hugging Face code does.
enum class AngleMode : uint8_t { kExact, kFloat32 };

// One coordinate of a position: (pos / divisor) % modulus + offset; modulus 0
// is none. A factor belongs into the frequencies, so that (y + 1/2) / height is
// an offset of 1/2 and frequencies divided by the height.
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
// which is the coordinate on one axis times a frequency, or a sum over all axes
// ("mixed"):
//   coordinate(axis[p]) * theta[p]    or    sum_a coordinate(a) * theta[p, a].
// With `log_decay`, pair p of the dot product is further multiplied by
// exp(log_decay[p] * (m - n)) (xPos).
struct Rotation {
  PairLayout layout = PairLayout::kInterleaved;
  int64_t rotary_dim = 0;     // channels that rotate, 2 per pair
  int64_t first_channel = 0;  // the rest pass through unchanged
  // Radians per position: [heads, rotary_dim / 2], or [heads, rotary_dim / 2,
  // axes] mixed.
  std::vector<double> theta = {};
  // 1: all heads share theta. Else one set of frequencies per key head, which
  // the query heads of its group share: a key is rotated once for all of them.
  int64_t heads = 1;
  std::vector<int32_t> axis = {};  // [rotary_dim / 2]; empty: all on axis 0
  std::vector<Axis> axes = {};     // empty: one axis, the position itself
  // Axes read positions as counted from here, and tokens before it, such as
  // [CLS], are not rotated: their angles are 0. Empty: every token rotates.
  std::optional<int64_t> origin = {};
  // Only positions from here on are packed, that is, read by `axes`; those
  // below are text, and every coordinate is the position itself. 0: all are
  // read by `axes`.
  int64_t packed_from = 0;
  std::vector<double> log_decay = {};  // [rotary_dim / 2]; empty: none
  double gain = 1.0;                   // multiplies cos and sin, of q and of k
  AngleMode angles = AngleMode::kExact;
  bool trains = false;  // the backward pass gives the gradient of theta

  int64_t NumPairs() const { return rotary_dim / 2; }
  int64_t NumAxes() const {
    return axes.empty() ? 1 : static_cast<int64_t>(axes.size());
  }
  // Every pair turns by all axes.
  bool Mixed() const {
    return theta.size() > static_cast<size_t>(heads * NumPairs());
  }
  // The same rotation with the frequencies of one key head alone.
  Rotation OfHead(int64_t kv_head) const;
  // The frequencies of a key head: [rotary_dim / 2], or [.., axes] mixed.
  std::span<const double> ThetaOf(int64_t kv_head) const {
    const size_t count = theta.size() / static_cast<size_t>(heads);
    const size_t row = heads == 1 ? 0 : static_cast<size_t>(kv_head);
    return std::span(theta).subspan(row * count, count);
  }
  int64_t FirstOfPair(int64_t p) const {
    return first_channel + (layout == PairLayout::kInterleaved ? 2 * p : p);
  }
  int64_t SecondOfPair(int64_t p) const {
    return FirstOfPair(p) +
           (layout == PairLayout::kInterleaved ? 1 : rotary_dim / 2);
  }
  // The axis that pair p turns by, unless all are mixed.
  int64_t AxisOf(int64_t p) const {
    return axis.empty() ? 0 : axis[static_cast<size_t>(p)];
  }
  bool Rotates(int64_t position) const {
    return !origin || position >= *origin;
  }
  // The coordinate on an axis of a position that rotates, without its offset.
  int64_t Coordinate(int64_t a, int64_t position) const;
  // The same with its offset; 0 if the position does not rotate.
  double Shifted(int64_t a, int64_t position) const;
  // Where text resumes after tokens at these positions: by one after the last;
  // if that is packed, with every coordinate one above the largest of all.
  TextPositions After(std::span<const int64_t> positions) const;
  // Cosines and sines of one position in a key head, times `gain`:
  // [rotary_dim / 2] each.
  void CosSin(int64_t position, double* cos, double* sin,
              int64_t kv_head = 0) const;
  // Equal ids rotate equally: keys cached under one id must not meet queries
  // rotated under another.
  uint64_t Id() const;
};

// Values rotated at the key. Relative: the output is rotated back at the query,
// so that it depends on m - n (DeepSeek-V4). Else it is left as it is, and
// depends on n (RoFormer's rotary_value). A norm-preserving rotation: no gain
// and no decay, and its frequencies do not train.
struct ValueRotation {
  Rotation rotation = {};
  bool relative = true;
};

// a_i.c_j: rows [heads or 1, positions, extra_dim] by position; row 0 belongs
// to `first_position`.
struct ExtraDot {
  Tensor q_rows = {};
  Tensor k_rows = {};
  int64_t first_position = 0;
};

// Rows [heads or 1, buckets, head_dim]; `heads` counts query heads.
struct BucketTable {
  Tensor rows = {};
  BucketMap buckets = {};
};

// B[h, b] from a table [heads or 1, buckets].
struct BiasTable {
  Tensor values = {};
  BucketMap buckets = {};
};

// B = -past[h] * max(m - n, 0) - future[h] * max(n - m, 0), made in registers.
struct BiasRamp {
  std::vector<double> past = {};    // [heads]
  std::vector<double> future = {};  // [heads]
};

// A bias through a piecewise-linear profile of a normalised distance:
//   x = u(|m - n|) * g(m)        B = base[h, s] + slope[h, s] * x
// where s counts the `knots` that are <= x. u and g are rows by distance and by
// query position, so nothing here grows faster than the length.
struct BiasProfile {
  std::vector<double> distance = {};  // u: [max_distance + 1]
  std::vector<double> row_gain = {};  // g: row 0 belongs to `first_position`
  int64_t first_position = 0;
  std::vector<double> knots = {};  // [S - 1] ascending
  Tensor base = {};                // [heads, S] f64
  Tensor slope = {};               // [heads, S] f64

  size_t Segment(double x) const;
};

using Bias = std::variant<BiasTable, BiasRamp, BiasProfile>;

// scale_i = scale * g[h, m]: a factor, times one by head and query position.
struct Scale {
  double scale = 1.0;
  // g: [heads or 1, positions], row 0 at `first_position`; absent: 1.
  Tensor rows = {};
  int64_t first_position = 0;

  double At(int64_t h, int64_t q_pos) const {
    if (!rows.defined()) return scale;
    return scale * rows.At(rows.size(0) == 1 ? 0 : h, q_pos - first_position);
  }
};

// What an encoding lowers to. The order is that of the computation.
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

// dL/d(term), in the shapes of the terms. Mirrors Terms; what has no
// parameters (rotations that do not train) has no gradient. `input_add` is
// filled by whoever owns x: attention never sees it.
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

// Gradients of zero in the shapes of `terms`.
TermGrads ZeroGrads(const Terms& terms);

// ------------------------------------------------------------- operations

// What a call looks like to an encoding: sizes, and which positions and offsets
// occur among the pairs that the mask lets through.
struct Shape {
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  std::optional<int64_t> value_dim = {};  // of v; empty: as head_dim
  std::optional<double> scale = {};  // the caller's; empty: the encoding's own
  int64_t min_q_pos = 0;
  int64_t max_q_pos = 0;
  int64_t min_k_pos = 0;
  int64_t max_k_pos = 0;
  int64_t min_offset = 0;
  int64_t max_offset = 0;
  int64_t table_dim = 0;  // of what meets the query table; 0: head_dim
  // Whether causality and a window compare positions, or else indices, and
  // whether the positions of every sequence rise from token to token.
  bool causal = false;
  bool windowed = false;
  bool by_index = false;
  bool rising = true;

  // Positions 0 .. length - 1 on both sides; causal sees offsets >= 0 only.
  static Shape SelfAttention(int64_t heads, int64_t head_dim, int64_t length,
                             bool causal = false);

  int64_t MinPosition() const { return std::min(min_q_pos, min_k_pos); }
  int64_t MaxPosition() const { return std::max(max_q_pos, max_k_pos); }
  // The caller's scale, or 1 / sqrt(factor * head_dim).
  double ScaleOr(double factor = 1.0) const;
};

// Llama 4's factor by query position, 1 + beta ln(1 + floor((m + shift) /
// span)); beta = 0: none.
struct QueryTemperature {
  double beta = 0.0;
  int64_t shift = 0;
  int64_t span = 1;

  double At(int64_t q_pos) const;
  // Makes it the rows of `scale`, for the query positions of a call.
  void Set(const Shape& shape, Scale& scale) const;
};

// Throws Error if a term does not fit the call: wrong sizes, an offset without
// a bucket, a position without a row.
void Validate(const Terms& terms, const Shape& shape);

// Several lines of text: one per term, with sizes and numbers.
std::string Describe(const Terms& terms);

// The names of the terms present, in order: {"rotate", "bias"}.
std::vector<std::string> TermNames(const Terms& terms);

// The bias of head `h` for one pair.
double BiasAt(const Bias& bias, int64_t h, int64_t q_pos, int64_t k_pos);

}  // namespace locus

#endif  // LOCUS_TERMS_H_

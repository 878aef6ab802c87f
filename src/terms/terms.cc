// Validation, description and evaluation of terms.
#include "locus/terms.h"

#include <cmath>
#include <limits>

#include "core/fail.h"
#include "locus/rotary.h"

namespace locus {
namespace {

// The largest factor allowed in a term. The kernels compute in float32 (up to
// 3.4e38): a dot product of 64 f16 channels (at most 2.7e11) and any offset
// (4.6e18) remain finite when multiplied by it.
constexpr double kLargestFactor = 1e18;

void CheckFactor(const char* what, double factor) {
  if (!(std::abs(factor) <= kLargestFactor)) {
    Fail("{} must lie in [{:g}, {:g}], got {}", what, -kLargestFactor,
         kLargestFactor, factor);
  }
}

void CheckHeads(const char* what, const Tensor& table, int64_t heads) {
  if (table.size(0) != 1 && table.size(0) != heads) {
    Fail("{} {} has {} heads, but the call has {}", what, table.Describe(),
         table.size(0), heads);
  }
}

// Throws Error unless every offset of the call has a bucket.
void CheckOffsets(const char* what, const BucketMap& map, const Shape& shape) {
  int64_t lo = shape.min_offset;
  int64_t hi = shape.max_offset;
  if (map.grid) {
    const bool shifted = map.special && map.grid->origin > 0;
    const int64_t first = shifted
                              ? std::max(shape.MinPosition(), map.grid->origin)
                              : shape.MinPosition();
    if (first < map.grid->origin) {
      Fail(
          "{} is a 2-D window from position {} on, but the call has position "
          "{}",
          what, map.grid->origin, first);
    }
    hi = map.Respace(shape.MaxPosition()) - map.Respace(first);
    lo = -hi;
  }
  if (lo < map.min_offset || hi > map.max_offset) {
    Fail("{} covers offsets {} .. {}, but the call has offsets {} .. {}", what,
         map.min_offset, map.max_offset, lo, hi);
  }
}

void CheckBucketTable(const char* what, const BucketTable& table, int64_t dim,
                      const Shape& shape) {
  const Tensor& rows = table.rows;
  if (rows.rank() != 3 || rows.size(1) != table.buckets.count ||
      rows.size(2) != dim) {
    Fail("{} must be [heads, {}, {}], got {}", what, table.buckets.count, dim,
         rows.Describe());
  }
  CheckHeads(what, rows, shape.q_heads);
  CheckOffsets(what, table.buckets, shape);
}

void CheckFirstPosition(const char* what, int64_t first) {
  if (first < kLowestPosition || first > kHighestPosition) {
    Fail("the first position of {} must lie in [{}, {}], got {}", what,
         kLowestPosition, kHighestPosition, first);
  }
}

void CheckRows(const char* what, const Tensor& rows, int axis, int64_t first,
               int64_t min_pos, int64_t max_pos) {
  CheckFirstPosition(what, first);
  if (min_pos < first || max_pos - first >= rows.size(axis)) {
    Fail("{} has rows for positions {} .. {}, but the call has position {}",
         what, first, first + rows.size(axis) - 1,
         min_pos < first ? min_pos : max_pos);
  }
}

// The scale at the query positions of a call.
void CheckScale(const Scale& scale, const Shape& shape) {
  CheckFactor("the scale", scale.scale);
  if (!scale.rows.defined()) return;
  if (scale.rows.rank() != 2) {
    Fail("the rows of the scale must be [heads, positions], got {}",
         scale.rows.Describe());
  }
  CheckHeads("the scale", scale.rows, shape.q_heads);
  CheckRows("the scale", scale.rows, 1, scale.first_position, shape.min_q_pos,
            shape.max_q_pos);
  for (int64_t h = 0; h < scale.rows.size(0); ++h) {
    for (int64_t m = shape.min_q_pos; m <= shape.max_q_pos; ++m) {
      CheckFactor("the scale of a query", scale.At(h, m));
    }
  }
}

// Packed positions compare by time, then row, then column. Causality can use
// that only if it is the order of the tokens; windows never can.
void CheckPackedPositions(const Rotation& rotation, const Shape& shape) {
  const int64_t lo = shape.MinPosition(), hi = shape.MaxPosition();
  if (hi < rotation.packed_from) {
    if (hi < kPlainBelow) return;
    Fail(
        "position {} is neither one of text, below 2^40, nor made by "
        "PackPosition",
        hi);
  }
  if (shape.windowed) {
    Fail(
        "a window cannot go by packed positions such as {}, which have no "
        "distance from one another: let it go by_index",
        hi);
  }
  if (shape.causal && lo < rotation.packed_from) {
    Fail(
        "causal attention cannot compare position {} of a text token with the "
        "packed position {}: pack those of text too, as PackPosition(p, p, p), "
        "or let it go by_index",
        lo, hi);
  }
  if (shape.causal && !shape.rising) {
    Fail(
        "causal attention cannot go by packed positions such as {} that do not "
        "rise from token to token: let it go by_index",
        hi);
  }
}

// One set of frequencies, or one per key head.
void CheckFrequencies(const Rotation& rotation, const Shape& shape) {
  if (rotation.heads < 1) {
    Fail("frequencies need at least one head, got {}", rotation.heads);
  }
  if (rotation.heads != 1 && rotation.heads != shape.kv_heads) {
    Fail(
        "frequencies per head must be those of the {} key heads, whose {} "
        "query "
        "heads share a rotated key, got {} heads",
        shape.kv_heads, shape.q_heads, rotation.heads);
  }
  const size_t pairs = static_cast<size_t>(rotation.NumPairs());
  const size_t mixed = pairs * static_cast<size_t>(rotation.NumAxes());
  const size_t heads = static_cast<size_t>(rotation.heads);
  const size_t count = rotation.theta.size();
  if (count != heads * pairs && count != heads * mixed) {
    const std::string each =
        heads == 1 ? "" : fmt::format(" in each of {} heads", heads);
    if (mixed == pairs) {
      Fail("{} pairs{} need {} frequencies, got {}", pairs, each, heads * pairs,
           count);
    }
    Fail("{} pairs{} need {} frequencies, or {} for {} axes, got {}", pairs,
         each, heads * pairs, heads * mixed, rotation.NumAxes(), count);
  }
  for (double theta : rotation.theta) CheckFactor("a frequency", theta);
}

// `dim`: channels of the rows that it rotates.
void CheckRotation(const Rotation& rotation, int64_t dim, const Shape& shape) {
  if (rotation.rotary_dim < 0 || rotation.rotary_dim % 2 != 0) {
    Fail("rotary_dim must be even, got {}", rotation.rotary_dim);
  }
  if (rotation.first_channel < 0 ||
      rotation.first_channel > dim - rotation.rotary_dim) {
    Fail("{} rotary channels from {} on do not fit a head of {}",
         rotation.rotary_dim, rotation.first_channel, dim);
  }
  CheckFrequencies(rotation, shape);
  const size_t pairs = static_cast<size_t>(rotation.NumPairs());
  if (rotation.Mixed() && !rotation.axis.empty()) {
    Fail("pairs that rotate by all {} axes have no axis of their own, got {}",
         rotation.NumAxes(), rotation.axis.size());
  }
  // The gain multiplies both sides of a dot product, and inverses divide by its
  // square.
  const double gain = std::abs(rotation.gain);
  if (!(gain * gain <= kLargestFactor && gain * gain >= 1 / kLargestFactor)) {
    Fail("the rotation's gain must lie between {:g} and {:g} in size, got {}",
         std::sqrt(1 / kLargestFactor), std::sqrt(kLargestFactor),
         rotation.gain);
  }
  if (!rotation.log_decay.empty() && rotation.log_decay.size() != pairs) {
    Fail("{} pairs need {} decays (or none), got {}", pairs, pairs,
         rotation.log_decay.size());
  }
  for (double decay : rotation.log_decay) {
    if (!std::isfinite(decay)) Fail("a decay is not finite: {}", decay);
  }
  if (!rotation.axis.empty() && rotation.axis.size() != pairs) {
    Fail("{} pairs need {} axis numbers (or none), got {}", pairs, pairs,
         rotation.axis.size());
  }
  const int32_t axes =
      static_cast<int32_t>(std::max<size_t>(rotation.axes.size(), 1));
  for (int32_t axis : rotation.axis) {
    if (axis < 0 || axis >= axes) {
      Fail("a pair rotates by axis {}, but there are {} axes", axis, axes);
    }
  }
  for (const Axis& axis : rotation.axes) {
    if (axis.divisor < 1 || axis.modulus < 0) {
      Fail("an axis needs a divisor >= 1 and a modulus >= 0, got {} and {}",
           axis.divisor, axis.modulus);
    }
    CheckFactor("the offset of an axis", axis.offset);
  }
  if (rotation.origin) {
    CheckFirstPosition("the rotation", *rotation.origin);
    if (rotation.packed_from > 0) {
      Fail("packed positions have no origin, got {}", *rotation.origin);
    }
  }
  if (rotation.packed_from > 0) {
    CheckPackedPositions(rotation, shape);
  } else if (!rotation.axes.empty() && !rotation.origin &&
             shape.MinPosition() < 0) {
    Fail("rotation by coordinates needs positions >= 0, got {}",
         shape.MinPosition());
  }
}

void CheckValueRotation(const Rotation& rotation, const Shape& shape) {
  CheckRotation(rotation, shape.value_dim.value_or(shape.head_dim), shape);
  if (rotation.gain != 1.0) {
    Fail("values are rotated without a gain, got {}", rotation.gain);
  }
  if (!rotation.log_decay.empty()) {
    Fail("values are rotated without a decay, got {} decays",
         rotation.log_decay.size());
  }
  if (rotation.trains) {
    Fail("the frequencies of a rotation of values do not train");
  }
}

void CheckBias(const Bias& bias, const Shape& shape) {
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    const Tensor& values = table->values;
    if (values.rank() != 2 || values.size(1) != table->buckets.count) {
      Fail("a bias table must be [heads, {}], got {}", table->buckets.count,
           values.Describe());
    }
    CheckHeads("the bias table", values, shape.q_heads);
    CheckOffsets("the bias table", table->buckets, shape);
  } else if (const auto* ramp = std::get_if<BiasRamp>(&bias)) {
    const size_t heads = static_cast<size_t>(shape.q_heads);
    if (ramp->past.size() != heads || ramp->future.size() != heads) {
      Fail("a bias ramp for {} heads has {} and {} slopes", heads,
           ramp->past.size(), ramp->future.size());
    }
    for (const auto* slopes : {&ramp->past, &ramp->future}) {
      for (double slope : *slopes) CheckFactor("a slope of the bias", slope);
    }
  } else {
    const auto& profile = std::get<BiasProfile>(bias);
    const int64_t segments = static_cast<int64_t>(profile.knots.size()) + 1;
    if (profile.base.rank() != 2 || profile.base.size(1) != segments ||
        profile.slope.shape() != profile.base.shape()) {
      Fail("a bias profile's base and slope must be [heads, {}], got {} and {}",
           segments, profile.base.Describe(), profile.slope.Describe());
    }
    CheckHeads("the bias profile", profile.base, shape.q_heads);
    for (const auto* row : {&profile.distance, &profile.row_gain}) {
      for (double value : *row) {
        if (!std::isfinite(value)) {
          Fail("the bias profile holds a value that is not finite: {}", value);
        }
      }
    }
    double last = -std::numeric_limits<double>::infinity();
    for (double knot : profile.knots) {
      if (!(knot >= last)) {
        Fail("the knots of a bias profile must ascend, got {} after {}", knot,
             last);
      }
      last = knot;
    }
    const int64_t reach =
        std::max(std::abs(shape.min_offset), std::abs(shape.max_offset));
    if (reach >= static_cast<int64_t>(profile.distance.size())) {
      Fail("the bias profile covers distances up to {}, but the call has {}",
           static_cast<int64_t>(profile.distance.size()) - 1, reach);
    }
    CheckFirstPosition("the bias profile", profile.first_position);
    const int64_t rows = static_cast<int64_t>(profile.row_gain.size());
    if (shape.min_q_pos < profile.first_position ||
        shape.max_q_pos - profile.first_position >= rows) {
      Fail(
          "the bias profile covers query positions {} .. {}, but the call has "
          "{} .. {}",
          profile.first_position, profile.first_position + rows - 1,
          shape.min_q_pos, shape.max_q_pos);
    }
  }
}

std::string DescribeTable(const char* name, const char* formula,
                          const BucketTable& table) {
  return fmt::format("{:<10} {}  rows {}; {}\n", name, formula,
                     table.rows.Describe(), table.buckets.Describe());
}

std::string DescribeRotation(const char* name, const char* formula,
                             const Rotation& r) {
  std::string text =
      fmt::format("{:<10} {}  {} of the channels from {}, {}", name, formula,
                  r.rotary_dim, r.first_channel,
                  r.layout == PairLayout::kInterleaved ? "interleaved pairs"
                                                       : "pairs of halves");
  if (!r.theta.empty()) {
    text += fmt::format(", theta {:.6g} .. {:.6g}", r.theta.front(),
                        r.theta.back());
  }
  if (r.heads > 1) text += fmt::format(" in {} heads", r.heads);
  if (r.gain != 1.0) text += fmt::format(", gain {:.9g}", r.gain);
  if (r.axes.size() > 1) {
    text +=
        fmt::format(", {} axes{}", r.axes.size(), r.Mixed() ? " mixed" : "");
  }
  if (r.origin) text += fmt::format(", from position {}", *r.origin);
  if (!r.log_decay.empty()) text += ", decays with the offset";
  if (r.angles == AngleMode::kFloat32) text += ", float32 angles";
  return text + '\n';
}

std::string DescribeBias(const Bias& bias) {
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    return fmt::format("table {}; {}", table->values.Describe(),
                       table->buckets.Describe());
  }
  if (const auto* ramp = std::get_if<BiasRamp>(&bias)) {
    return fmt::format("ramp, slopes past [{:.6g}], future [{:.6g}]",
                       fmt::join(ramp->past, ", "),
                       fmt::join(ramp->future, ", "));
  }
  const auto& profile = std::get<BiasProfile>(bias);
  return fmt::format("profile of {} linear pieces for {} heads",
                     profile.base.size(1), profile.base.size(0));
}

}  // namespace

size_t BiasProfile::Segment(double x) const {
  return static_cast<size_t>(std::upper_bound(knots.begin(), knots.end(), x) -
                             knots.begin());
}

double QueryTemperature::At(int64_t q_pos) const {
  const int64_t steps = (q_pos + shift) / span;
  return 1.0 + beta * std::log1p(static_cast<double>(steps));
}

void QueryTemperature::Set(const Shape& shape, Scale& scale) const {
  CheckFactor("the temperature's slope", beta);
  if (span < 1) Fail("the temperature's span must be positive, got {}", span);
  if (shift < kLowestPosition || shift > kHighestPosition) {
    Fail("the temperature's shift must lie in [{}, {}], got {}",
         kLowestPosition, kHighestPosition, shift);
  }
  if (shape.min_q_pos + shift < 0) {
    Fail("the temperature needs query positions of at least {}, got {}", -shift,
         shape.min_q_pos);
  }
  // A row of 128 MiB.
  constexpr int64_t kMostPositions = int64_t{1} << 24;
  const int64_t positions = shape.max_q_pos - shape.min_q_pos + 1;
  if (positions > kMostPositions) {
    Fail(
        "the temperature needs query positions within {} of each other, got "
        "{} to {}",
        kMostPositions, shape.min_q_pos, shape.max_q_pos);
  }
  scale.first_position = shape.min_q_pos;
  scale.rows = Tensor::Empty(DType::kF64, {1, positions});
  double* rows = scale.rows.MutableData<double>();
  for (int64_t n = 0; n < positions; ++n) rows[n] = At(shape.min_q_pos + n);
}

Shape Shape::SelfAttention(int64_t heads, int64_t head_dim, int64_t length,
                           bool causal) {
  constexpr int64_t kMost = int64_t{1} << 61;
  if (length < 0 || length > kMost) {
    Fail("a length must lie in [0, {}], got {}", kMost, length);
  }
  Shape shape;
  shape.q_heads = heads;
  shape.kv_heads = heads;
  shape.head_dim = head_dim;
  const int64_t last = std::max<int64_t>(length - 1, 0);
  shape.max_q_pos = last;
  shape.max_k_pos = last;
  shape.min_offset = causal ? 0 : -last;
  shape.max_offset = last;
  return shape;
}

double Shape::ScaleOr(double factor) const {
  if (scale) return *scale;
  return 1.0 / std::sqrt(factor * static_cast<double>(head_dim));
}

double BiasAt(const Bias& bias, int64_t h, int64_t q_pos, int64_t k_pos) {
  const int64_t offset = q_pos - k_pos;
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    const int64_t row = table->values.size(0) == 1 ? 0 : h;
    return table->values.At(row, table->buckets(q_pos, k_pos));
  }
  if (const auto* ramp = std::get_if<BiasRamp>(&bias)) {
    const size_t head = static_cast<size_t>(h);
    const double distance = std::abs(static_cast<double>(offset));
    return -(offset >= 0 ? ramp->past[head] : ramp->future[head]) * distance;
  }
  const auto& profile = std::get<BiasProfile>(bias);
  const double x =
      profile.distance[static_cast<size_t>(std::abs(offset))] *
      profile.row_gain[static_cast<size_t>(q_pos - profile.first_position)];
  const int64_t row = profile.base.size(0) == 1 ? 0 : h;
  const size_t segment = profile.Segment(x);
  return profile.base.At(row, segment) + profile.slope.At(row, segment) * x;
}

void Validate(const Terms& terms, const Shape& shape) {
  if (shape.by_index && !shape.rising &&
      (terms.q_table || terms.k_table || terms.v_table || terms.bias)) {
    Fail("a mask by_index beside a bias or a table needs positions that rise");
  }
  if (terms.input_add) {
    const InputAdd& add = *terms.input_add;
    if (add.table.rank() != 2) {
      Fail("an input table must be [positions, model_dim], got {}",
           add.table.Describe());
    }
    CheckRows("the input table", add.table, 0, add.first_position,
              shape.MinPosition(), shape.MaxPosition());
  }
  CheckScale(terms.scale, shape);
  if (terms.rotate) CheckRotation(*terms.rotate, shape.head_dim, shape);
  if (terms.extra_dot) {
    const ExtraDot& dot = *terms.extra_dot;
    if (dot.q_rows.rank() != 3 || dot.k_rows.rank() != 3 ||
        dot.q_rows.size(2) != dot.k_rows.size(2)) {
      Fail(
          "extra dimensions must be [heads, positions, E] on both sides, got "
          "{} and {}",
          dot.q_rows.Describe(), dot.k_rows.Describe());
    }
    CheckHeads("the query side of the extra dimensions", dot.q_rows,
               shape.q_heads);
    CheckHeads("the key side of the extra dimensions", dot.k_rows,
               shape.q_heads);
    CheckRows("the extra dimensions", dot.q_rows, 1, dot.first_position,
              shape.min_q_pos, shape.max_q_pos);
    CheckRows("the extra dimensions", dot.k_rows, 1, dot.first_position,
              shape.min_k_pos, shape.max_k_pos);
  }
  if (terms.q_table) {
    CheckBucketTable("the query table", *terms.q_table,
                     shape.table_dim > 0 ? shape.table_dim : shape.head_dim,
                     shape);
  }
  if (terms.k_table) {
    CheckBucketTable("the key table", *terms.k_table, shape.head_dim, shape);
  }
  if (terms.bias) CheckBias(*terms.bias, shape);
  if (terms.v_table) {
    // The width of the table; the call checks it against v.
    CheckBucketTable("the value table", *terms.v_table,
                     terms.v_table->rows.rank() == 3
                         ? terms.v_table->rows.size(2)
                         : shape.head_dim,
                     shape);
  }
  if (terms.rotate_values) {
    CheckValueRotation(terms.rotate_values->rotation, shape);
  }
}

std::vector<std::string> TermNames(const Terms& terms) {
  std::vector<std::string> names;
  if (terms.input_add) names.emplace_back("input_add");
  if (terms.rotate) names.emplace_back("rotate");
  if (terms.extra_dot) names.emplace_back("extra_dot");
  if (terms.q_table) names.emplace_back("q_table");
  if (terms.k_table) names.emplace_back("k_table");
  if (terms.bias) names.emplace_back("bias");
  if (terms.v_table) names.emplace_back("v_table");
  if (terms.rotate_values) names.emplace_back("rotate_values");
  return names;
}

std::string Describe(const Terms& terms) {
  std::string text;
  if (terms.input_add) {
    const InputAdd& add = *terms.input_add;
    text += fmt::format("{:<10} x += E[pos]  table {} from position {}",
                        "input_add", add.table.Describe(), add.first_position);
    if (add.widen > 0) text += fmt::format(", x widened by {}", add.widen);
    text += '\n';
  }
  text += fmt::format("{:<10} {:.9g}", "scale", terms.scale.scale);
  if (terms.scale.rows.defined()) {
    text +=
        fmt::format(" * g[h, pos]  rows {} from position {}",
                    terms.scale.rows.Describe(), terms.scale.first_position);
  }
  text += '\n';
  if (terms.rotate) {
    text += DescribeRotation("rotate", "rot(q).rot(k)", *terms.rotate);
  }
  if (terms.extra_dot) {
    text += fmt::format("{:<10} a_i.c_j  rows {} and {}\n", "extra_dot",
                        terms.extra_dot->q_rows.Describe(),
                        terms.extra_dot->k_rows.Describe());
  }
  if (terms.q_table)
    text += DescribeTable("q_table", "q.Tq[b]", *terms.q_table);
  if (terms.k_table)
    text += DescribeTable("k_table", "k.Tk[b]", *terms.k_table);
  if (terms.bias) {
    text +=
        fmt::format("{:<10} B[h, b]  {}\n", "bias", DescribeBias(*terms.bias));
  }
  if (terms.v_table)
    text += DescribeTable("v_table", "p Tv[b]", *terms.v_table);
  if (terms.rotate_values) {
    text += DescribeRotation(
        "rotate_values",
        terms.rotate_values->relative ? "unrot(p rot(v))" : "p rot(v)",
        terms.rotate_values->rotation);
  }
  return text;
}

namespace {
Tensor ZerosLike(const Tensor& t) {
  return Tensor::Zeros(DType::kF64, t.shape());
}
}  // namespace

TermGrads ZeroGrads(const Terms& terms) {
  TermGrads grads;
  if (terms.input_add) grads.input_add = ZerosLike(terms.input_add->table);
  if (terms.scale.rows.defined()) grads.scale = ZerosLike(terms.scale.rows);
  if (terms.rotate && terms.rotate->trains) {
    grads.rotate =
        RotationGrads{std::vector<double>(terms.rotate->theta.size())};
  }
  if (terms.extra_dot) {
    grads.extra_dot =
        ExtraDotGrads{.q_rows = ZerosLike(terms.extra_dot->q_rows),
                      .k_rows = ZerosLike(terms.extra_dot->k_rows)};
  }
  if (terms.q_table) grads.q_table = ZerosLike(terms.q_table->rows);
  if (terms.k_table) grads.k_table = ZerosLike(terms.k_table->rows);
  if (terms.v_table) grads.v_table = ZerosLike(terms.v_table->rows);
  if (terms.bias) {
    if (const auto* table = std::get_if<BiasTable>(&*terms.bias)) {
      grads.bias = BiasTableGrads{ZerosLike(table->values)};
    } else if (const auto* ramp = std::get_if<BiasRamp>(&*terms.bias)) {
      grads.bias = BiasRampGrads{std::vector<double>(ramp->past.size()),
                                 std::vector<double>(ramp->future.size())};
    } else {
      const auto& profile = std::get<BiasProfile>(*terms.bias);
      grads.bias =
          BiasProfileGrads{std::vector<double>(profile.distance.size()),
                           std::vector<double>(profile.row_gain.size()),
                           ZerosLike(profile.base), ZerosLike(profile.slope)};
    }
  }
  return grads;
}

}  // namespace locus

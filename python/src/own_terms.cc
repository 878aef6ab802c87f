#include "own_terms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "locus/error.h"

namespace locus::python {
namespace {

constexpr OwnArray kAll[] = {
    {"input_add", &OwnArrays::input_add},
    {"scale_rows", &OwnArrays::scale_rows},
    {"theta", &OwnArrays::theta},
    {"q_rows", &OwnArrays::q_rows},
    {"k_rows", &OwnArrays::k_rows},
    {"slopes", &OwnArrays::slopes},
    {"future_slopes", &OwnArrays::future_slopes},
    {"profile_distance", &OwnArrays::profile_distance},
    {"profile_gain", &OwnArrays::profile_gain},
    {"profile_base", &OwnArrays::profile_base},
    {"profile_slope", &OwnArrays::profile_slope},
    {"q_table", &OwnArrays::q_table},
    {"k_table", &OwnArrays::k_table},
    {"bias", &OwnArrays::bias},
    {"v_table", &OwnArrays::v_table},
};
// The last four.
constexpr size_t kTables = 4;

// A tensor of the same elements in a row-major order of other sizes.
Tensor Reshaped(const Tensor& tensor, std::vector<int64_t> shape) {
  return Tensor::Borrow(tensor.dtype(), std::move(shape), {}, tensor.Raw(),
                        std::make_shared<const Tensor>(tensor));
}

// [heads, ..] of an array that may lack the axis of heads.
Tensor WithHeads(const Tensor& array, int rank) {
  if (array.rank() + 1 != rank) return array;
  std::vector<int64_t> shape = array.shape(), strides = array.strides();
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), 0);
  return Tensor::Borrow(array.dtype(), std::move(shape), std::move(strides),
                        array.Raw(), std::make_shared<const Tensor>(array));
}

void CheckRank(const char* name, const Tensor& array, const char* wanted,
               int rank, bool without_heads) {
  if (!array.defined()) return;
  const bool fits =
      array.rank() == rank || (without_heads && array.rank() == rank - 1);
  if (!fits || array.NumElements() == 0) {
    throw Error(std::string(name) + " must be " + wanted + ", got " +
                array.Describe());
  }
}

void CheckRanks(const OwnArrays& a) {
  CheckRank("input_add", a.input_add, "[positions, model_dim]", 2, false);
  CheckRank("scale_rows", a.scale_rows, "[positions] or [heads, positions]", 2,
            true);
  if (a.theta.defined() && a.theta.rank() != 1) {
    CheckRank("theta", a.theta,
              "[pairs], [pairs, axes] or [heads, pairs, axes]", 3, true);
  }
  const char* rows = "[positions, E] or [heads, positions, E]";
  CheckRank("q_rows", a.q_rows, rows, 3, true);
  CheckRank("k_rows", a.k_rows, rows, 3, true);
  const char* table = "[rows, D] or [heads, rows, D]";
  CheckRank("q_table", a.q_table, table, 3, true);
  CheckRank("k_table", a.k_table, table, 3, true);
  CheckRank("v_table", a.v_table, table, 3, true);
  CheckRank("bias", a.bias, "[rows] or [heads, rows]", 2, true);
  CheckRank("slopes", a.slopes, "[heads]", 1, false);
  CheckRank("future_slopes", a.future_slopes, "[heads]", 1, false);
  CheckRank("profile_distance", a.profile_distance, "[distances]", 1, false);
  CheckRank("profile_gain", a.profile_gain, "[positions]", 1, false);
  const char* profile = "[segments] or [heads, segments]";
  CheckRank("profile_base", a.profile_base, profile, 2, true);
  CheckRank("profile_slope", a.profile_slope, profile, 2, true);
}

// Arrays that only make sense together.
void CheckTogether(const OwnArrays& a, const OwnSettings& s) {
  if (a.q_rows.defined() != a.k_rows.defined()) {
    throw Error(
        "q_rows and k_rows must be given together, and there are only "
        "the " +
        std::string(a.q_rows.defined() ? "q_rows" : "k_rows"));
  }
  if (a.future_slopes.defined() && !a.slopes.defined()) {
    throw Error(
        "future_slopes need slopes, those of earlier keys, beside them");
  }
  if (a.slopes.defined() && a.future_slopes.defined() &&
      a.slopes.shape() != a.future_slopes.shape()) {
    throw Error("slopes " + a.slopes.Describe() + " and future_slopes " +
                a.future_slopes.Describe() + " must be of one length");
  }
  const Tensor* profile[] = {&a.profile_distance, &a.profile_gain,
                             &a.profile_base, &a.profile_slope};
  const auto given =
      std::count_if(std::begin(profile), std::end(profile),
                    [](const Tensor* t) { return t->defined(); });
  if (given != 0 && given != 4) {
    throw Error(
        "a profile needs profile_distance, profile_gain, profile_base "
        "and profile_slope, and only " +
        std::to_string(given) + " of them are given");
  }
  if (given == 4 && a.profile_base.shape() != a.profile_slope.shape()) {
    throw Error("profile_base " + a.profile_base.Describe() +
                " and profile_slope " + a.profile_slope.Describe() +
                " must be of one shape");
  }
  if (given == 0 && !s.profile_knots.empty()) {
    throw Error("profile_knots are given without a profile");
  }
  if (a.bias.defined() + a.slopes.defined() + (given != 0) > 1) {
    throw Error(
        "a bias is a table (bias), a ramp (slopes) or a profile, and "
        "two of them are given");
  }
  if (a.theta.defined() && !s.has_layout) {
    throw Error(
        "theta needs a layout, \"interleaved\" or \"halves\": mixing "
        "them up goes unnoticed");
  }
  if (!a.theta.defined() && s.has_layout) {
    throw Error("layout and rotation are those of theta, which is not given");
  }
  for (const auto& [table, rule] : s.rules) {
    const auto named = [&table = table](const OwnArray& each) {
      return table == each.name;
    };
    const auto tables = OwnTables();
    const auto found = std::find_if(tables.begin(), tables.end(), named);
    if (found == tables.end() || !(a.*found->array).defined()) {
      throw Error("there is no table " + table +
                  " whose offsets could be given: tables are q_table, k_table, "
                  "bias and v_table");
    }
  }
}

// What does not depend on the call must hold at once: frequencies, axes.
void CheckRotation(const Rotation& rotation, bool values) {
  constexpr int64_t kMostChannels = int64_t{1} << 24;
  if (rotation.first_channel < 0 || rotation.first_channel > kMostChannels) {
    throw Error("first_channel must lie in [0, 2^24], got " +
                std::to_string(rotation.first_channel));
  }
  Shape shape;
  shape.head_dim = rotation.first_channel + rotation.rotary_dim;
  shape.q_heads = shape.kv_heads = rotation.heads;
  if (values) {
    shape.value_dim = shape.head_dim;
    Validate({.rotate_values = ValueRotation{rotation}}, shape);
  } else {
    Validate({.rotate = rotation}, shape);
  }
}

// The rotation with its frequencies.
Rotation RotationBy(const Tensor& theta, Rotation rotation) {
  rotation.rotary_dim = 2 * theta.size(theta.rank() == 3 ? 1 : 0);
  rotation.heads = theta.rank() == 3 ? theta.size(0) : 1;
  rotation.theta = theta.ToVector();
  rotation.trains = true;
  return rotation;
}

Tensor Doubles(const std::vector<double>& values, const Tensor& like) {
  return Tensor::From(like.shape(), values);
}

// A gradient in the sizes of its parameter.
Tensor LikeParam(const Tensor& grad, const Tensor& param) {
  return Reshaped(grad.To(DType::kF64), param.shape());
}

}  // namespace

std::span<const OwnArray> AllOwnArrays() { return kAll; }
std::span<const OwnArray> OwnTables() { return AllOwnArrays().last(kTables); }

OwnTerms::OwnTerms(OwnArrays arrays, OwnSettings settings)
    : arrays_(std::move(arrays)), settings_(std::move(settings)) {
  const int64_t first = settings_.first_position;
  if (first < kLowestPosition || first > kHighestPosition) {
    throw Error("first_position must lie in [" +
                std::to_string(kLowestPosition) + ", " +
                std::to_string(kHighestPosition) + "], got " +
                std::to_string(first));
  }
  CheckRanks(arrays_);
  CheckTogether(arrays_, settings_);
  if (arrays_.theta.defined()) {
    const bool by_axis = arrays_.theta.rank() > 1;
    const int64_t axes = by_axis ? arrays_.theta.size(-1) : 1;
    if (by_axis && axes != settings_.rotation.NumAxes()) {
      throw Error("theta " + arrays_.theta.Describe() +
                  " has frequencies for " + std::to_string(axes) +
                  " axes, and the rotation has " +
                  std::to_string(settings_.rotation.NumAxes()));
    }
    CheckRotation(RotationBy(arrays_.theta, settings_.rotation),
                  /*values=*/false);
  }
  if (settings_.rotate_values) {
    CheckRotation(settings_.rotate_values->rotation, /*values=*/true);
  }
  for (const OwnArray& each : OwnTables()) {
    const Tensor& table = arrays_.*each.array;
    if (!table.defined()) continue;
    const bool bias = each.array == &OwnArrays::bias;
    maps_[each.name] = MapOf(each.name, table.size(bias ? -1 : -2),
                             settings_.rules[each.name]);
  }
}

std::optional<BucketTable> OwnTerms::TableOf(const char* name,
                                             const Tensor& rows) const {
  if (!rows.defined()) return std::nullopt;
  return BucketTable{WithHeads(rows, 3), maps_.at(name)};
}

std::optional<Bias> OwnTerms::BiasOf() const {
  const OwnArrays& a = arrays_;
  if (a.bias.defined()) {
    return BiasTable{WithHeads(a.bias, 2), maps_.at("bias")};
  }
  if (a.slopes.defined()) {
    const Tensor& future =
        a.future_slopes.defined() ? a.future_slopes : a.slopes;
    return BiasRamp{.past = a.slopes.ToVector(), .future = future.ToVector()};
  }
  if (!a.profile_base.defined()) return std::nullopt;
  return BiasProfile{.distance = a.profile_distance.ToVector(),
                     .row_gain = a.profile_gain.ToVector(),
                     .first_position = settings_.first_position,
                     .knots = settings_.profile_knots,
                     .base = WithHeads(a.profile_base, 2).To(DType::kF64),
                     .slope = WithHeads(a.profile_slope, 2).To(DType::kF64)};
}

Lowered OwnTerms::Lower(const Shape& shape) const {
  const OwnArrays& a = arrays_;
  const int64_t first = settings_.first_position;
  Lowered lowered;
  Terms& terms = lowered.terms;
  terms.scale.scale =
      shape.scale ? *shape.scale : settings_.scale.value_or(shape.ScaleOr());
  if (a.scale_rows.defined()) {
    terms.scale.rows = WithHeads(a.scale_rows, 2);
    terms.scale.first_position = first;
  }
  if (a.input_add.defined()) {
    terms.input_add = InputAdd{.table = a.input_add, .first_position = first};
  }
  if (a.theta.defined()) {
    terms.rotate = RotationBy(a.theta, settings_.rotation);
  }
  if (a.q_rows.defined()) {
    terms.extra_dot = ExtraDot{.q_rows = WithHeads(a.q_rows, 3),
                               .k_rows = WithHeads(a.k_rows, 3),
                               .first_position = first};
  }
  terms.q_table = TableOf("q_table", a.q_table);
  terms.k_table = TableOf("k_table", a.k_table);
  terms.bias = BiasOf();
  terms.v_table = TableOf("v_table", a.v_table);
  terms.rotate_values = settings_.rotate_values;
  return lowered;
}

std::vector<Param> OwnTerms::Params() const {
  std::vector<Param> params;
  for (const OwnArray& each : AllOwnArrays()) {
    const Tensor& array = arrays_.*each.array;
    if (array.defined()) params.push_back({each.name, array});
  }
  return params;
}

std::unique_ptr<Encoding> OwnTerms::WithParams(
    std::span<const Tensor> values) const {
  OwnArrays arrays = arrays_;
  size_t next = 0;
  for (const OwnArray& each : AllOwnArrays()) {
    Tensor& array = arrays.*each.array;
    if (array.defined() && next < values.size()) array = values[next++];
  }
  if (next != Params().size() || next != values.size()) {
    throw Error("terms has " + std::to_string(Params().size()) +
                " parameters, got " + std::to_string(values.size()));
  }
  return std::make_unique<OwnTerms>(std::move(arrays), settings_);
}

ParamGrads OwnTerms::PullBack(const Shape& /*shape*/,
                              const TermGrads& grads) const {
  const OwnArrays& a = arrays_;
  OwnArrays d;
  if (a.input_add.defined()) d.input_add = grads.input_add;
  if (a.scale_rows.defined()) d.scale_rows = grads.scale;
  if (a.theta.defined()) d.theta = Doubles(grads.rotate->theta, a.theta);
  if (a.q_rows.defined()) {
    d.q_rows = grads.extra_dot->q_rows;
    d.k_rows = grads.extra_dot->k_rows;
  }
  d.q_table = grads.q_table;
  d.k_table = grads.k_table;
  d.v_table = grads.v_table;
  if (a.bias.defined()) d.bias = std::get<BiasTableGrads>(*grads.bias).values;
  if (a.slopes.defined()) {
    const auto& ramp = std::get<BiasRampGrads>(*grads.bias);
    std::vector<double> past = ramp.past;
    if (a.future_slopes.defined()) {
      d.future_slopes = Doubles(ramp.future, a.future_slopes);
    } else {
      // One slope for both sides.
      for (size_t h = 0; h < past.size(); ++h) past[h] += ramp.future[h];
    }
    d.slopes = Doubles(past, a.slopes);
  }
  if (a.profile_base.defined()) {
    const auto& profile = std::get<BiasProfileGrads>(*grads.bias);
    d.profile_distance = Doubles(profile.distance, a.profile_distance);
    d.profile_gain = Doubles(profile.row_gain, a.profile_gain);
    d.profile_base = profile.base;
    d.profile_slope = profile.slope;
  }
  ParamGrads params;
  for (const OwnArray& each : AllOwnArrays()) {
    const Tensor& array = arrays_.*each.array;
    if (!array.defined()) continue;
    params.push_back({each.name, LikeParam(d.*each.array, array)});
  }
  return params;
}

Tensor OwnTerms::Embed(std::span<const int64_t> positions) const {
  const Tensor& table = arrays_.input_add;
  if (!table.defined()) return Encoding::Embed(positions);
  const int64_t first = settings_.first_position, dim = table.size(1);
  Tensor rows =
      Tensor::Empty(DType::kF64, {static_cast<int64_t>(positions.size()), dim});
  double* to = rows.MutableData<double>();
  for (const int64_t p : positions) {
    if (p < first || p - first >= table.size(0)) {
      throw Error("input_add has rows for positions " + std::to_string(first) +
                  " .. " + std::to_string(first + table.size(0) - 1) +
                  ", got position " + std::to_string(p));
    }
    for (int64_t c = 0; c < dim; ++c) *to++ = table.At(p - first, c);
  }
  return rows;
}

OffsetBias::OffsetBias(Tensor table, RowRule rule)
    : table_(std::move(table)), rule_(std::move(rule)) {
  if (table_.rank() != 2 || table_.NumElements() == 0) {
    throw Error("table must be [heads, offsets], got " + table_.Describe());
  }
  map_ = MapOf("table", table_.size(1), rule_);
}

Lowered OffsetBias::Lower(const Shape& shape) const {
  Lowered lowered;
  lowered.terms.scale.scale = shape.ScaleOr();
  lowered.terms.bias = BiasTable{table_, map_};
  return lowered;
}

std::vector<Param> OffsetBias::Params() const { return {{"table", table_}}; }

std::unique_ptr<Encoding> OffsetBias::WithParams(
    std::span<const Tensor> values) const {
  if (values.size() != 1) {
    throw Error("an offset bias has 1 parameter, got " +
                std::to_string(values.size()));
  }
  return std::make_unique<OffsetBias>(values[0], rule_);
}

ParamGrads OffsetBias::PullBack(const Shape& /*shape*/,
                                const TermGrads& grads) const {
  return {
      {"table", std::get<BiasTableGrads>(*grads.bias).values.To(DType::kF64)}};
}

}  // namespace locus::python

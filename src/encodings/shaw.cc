// Relative position representations.
//
//   r = clip(m - n, r_min, r_max)
//   s = scale * q.(k + pK_r)            o = sum p (v + pV_r)
//
// which is q_table = pK and v_table = pV over clipped offsets. The key-offset
// form f_k = W_K x + p_(m-n) is the same without clipping and without values.
// Shaw et al., "Self-Attention with Relative Position Representations" (2018);
// Su et al., "RoFormer" (2021), equation 5.
#include "locus/encodings/shaw.h"

#include "encodings/common.h"

namespace locus {
namespace {

void CheckRelativeRows(const char* what, const Tensor& table, int64_t rows) {
  const bool fits = (table.rank() == 2 && table.size(0) == rows) ||
                    (table.rank() == 3 && table.size(1) == rows);
  if (!fits || table.NumElements() == 0) {
    Fail("{} must be [{}, D] or [heads, {}, D], got {}", what, rows, rows,
         table.Describe());
  }
}

}  // namespace

Shaw::Shaw(Tensor keys, Tensor values, int64_t r_min, int64_t r_max)
    : keys_(std::move(keys)),
      values_(std::move(values)),
      r_min_(r_min),
      r_max_(r_max) {
  const int64_t rows = BucketMap::Clip(r_min, r_max).count;
  if (!keys_.defined() && !values_.defined()) {
    Fail("Shaw needs keys, values or both, got neither");
  }
  if (keys_.defined()) CheckRelativeRows("Shaw keys", keys_, rows);
  if (values_.defined()) CheckRelativeRows("Shaw values", values_, rows);
}

Lowered Shaw::Lower(const Shape& shape) const {
  Lowered lowered = LowerPlain(shape);
  const BucketMap buckets = BucketMap::Clip(r_min_, r_max_);
  if (keys_.defined()) {
    lowered.terms.q_table = BucketTable{WithHeadAxis(keys_), buckets};
  }
  if (values_.defined()) {
    lowered.terms.v_table = BucketTable{WithHeadAxis(values_), buckets};
  }
  return lowered;
}

std::vector<Param> Shaw::Params() const {
  std::vector<Param> params;
  if (keys_.defined()) params.push_back({"keys", keys_});
  if (values_.defined()) params.push_back({"values", values_});
  return params;
}

std::unique_ptr<Encoding> Shaw::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  size_t next = 0;
  Tensor keys = keys_.defined() ? values[next++] : Tensor();
  Tensor rows = values_.defined() ? values[next++] : Tensor();
  return std::make_unique<Shaw>(keys, rows, r_min_, r_max_);
}

ParamGrads Shaw::PullBack(const Shape&, const TermGrads& grads) const {
  ParamGrads out;
  if (keys_.defined()) {
    out.push_back({"keys", LikeParam(grads.q_table, keys_)});
  }
  if (values_.defined()) {
    out.push_back({"values", LikeParam(grads.v_table, values_)});
  }
  return out;
}

KeyOffset::KeyOffset(Tensor rows) : rows_(std::move(rows)) {
  const int64_t count = rows_.rank() == 3   ? rows_.size(1)
                        : rows_.rank() == 2 ? rows_.size(0)
                                            : 0;
  if (count % 2 != 1) {
    Fail(
        "key offsets need 2M - 1 rows, [2M - 1, D] or [heads, 2M - 1, D], got "
        "{}",
        rows_.Describe());
  }
}

Lowered KeyOffset::Lower(const Shape& shape) const {
  Lowered lowered = LowerPlain(shape);
  const Tensor rows = WithHeadAxis(rows_);
  const int64_t reach = rows.size(1) / 2;
  lowered.terms.q_table = BucketTable{rows, BucketMap::Identity(-reach, reach)};
  return lowered;
}

std::vector<Param> KeyOffset::Params() const { return {{"rows", rows_}}; }

std::unique_ptr<Encoding> KeyOffset::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<KeyOffset>(values[0]);
}

ParamGrads KeyOffset::PullBack(const Shape&, const TermGrads& grads) const {
  return {{"rows", LikeParam(grads.q_table, rows_)}};
}

namespace {

constexpr Field kShawFields[] = {
    {.name = "keys",
     .type = FieldType::kTable,
     .shape = "[heads,] r_max - r_min + 1, D",
     .optional = true,
     .sentence = "added to the keys; without an axis of heads they share it"},
    {.name = "values",
     .type = FieldType::kTable,
     .fallback = "None",
     .shape = "[heads,] r_max - r_min + 1, D",
     .optional = true,
     .sentence = "added to the values; one of both tables may be None"},
    {.name = "r_min",
     .fallback = "None",
     .optional = true,
     .sentence = "offset of the first row; without bounds the clip is "
                 "symmetric"},
    {.name = "r_max",
     .fallback = "None",
     .optional = true,
     .sentence = "offset of the last row"}};
constexpr Field kShawOptions[] = {
    {.name = "clip",
     .fallback = "16",
     .sentence = "offsets beyond it share the last row",
     .slider = {1, 512, 2, /*logarithmic=*/true}},
    {.name = "values",
     .type = FieldType::kFlag,
     .fallback = "True",
     .sentence = "vectors for the values too"}};
constexpr std::string_view kShawVariants[] = {"values=false"};
// One table for all heads of a layer, as in the paper.
constexpr ParamTraining kShawTraining[] = {
    {.name = "keys", .start = Start::kXavier, .shared_by_heads = true},
    {.name = "values", .start = Start::kXavier, .shared_by_heads = true}};

// (r_min, r_max) of a table with this many rows; the clip is symmetric if no
// bounds are given.
std::pair<int64_t, int64_t> ClipOf(const Tensor& rows,
                                   std::optional<int64_t> r_min,
                                   std::optional<int64_t> r_max) {
  if (r_min && r_max) return {*r_min, *r_max};
  if (!rows.defined() || rows.rank() < 2) return {0, 0};  // reported by Shaw
  const int64_t count = rows.size(-2);
  int64_t other = 0;
  if (r_min && !__builtin_add_overflow(*r_min, count - 1, &other)) {
    return {*r_min, other};
  }
  if (r_max && !__builtin_sub_overflow(*r_max, count - 1, &other)) {
    return {other, *r_max};
  }
  if (r_min || r_max) {
    Fail("{} = {} leaves no room for {} rows", r_min ? "r_min" : "r_max",
         r_min ? *r_min : *r_max, count);
  }
  if (count % 2 == 0) {
    Fail(
        "a table of {} rows is not symmetric about offset 0: give r_min or "
        "r_max",
        count);
  }
  return {-(count / 2), count / 2};
}

}  // namespace

LOCUS_DESCRIPTOR(Shaw) = {
    .name = "shaw",
    .class_name = "Shaw",
    .title = "Shaw relative keys and values",
    .formula = "s = scale q.(k + pK_r), o = sum p (v + pV_r), r = clip(m - n)",
    .summary =
        "Shaw et al. (2018): k_n + keys[r], v_n + values[r] with r = clip(m - "
        "n, "
        "r_min, r_max) - r_min.",
    .paper =
        "Shaw et al., Self-Attention with Relative Position "
        "Representations, 2018",
    .models = "BERT relative_key, Music Transformer",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "all offsets beyond the clip look alike",
    .picture = Picture::kScore,
    .fields = kShawFields,
    .options = kShawOptions,
    .variants = kShawVariants,
    .training = kShawTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      const Tensor keys = f.Table("keys"), values = f.Table("values");
      const auto [low, high] =
          ClipOf(keys.defined() ? keys : values, f.IntOrNone("r_min"),
                 f.IntOrNone("r_max"));
      return std::make_unique<Shaw>(keys, values, low, high);
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Shaw&>(encoding);
      return {{"r_min", e.r_min()}, {"r_max", e.r_max()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const int64_t clip = o.Int("clip");
      CheckSize("shaw option clip", clip);
      const std::vector<int64_t> shape = {config.heads, 2 * clip + 1,
                                          config.head_dim};
      FieldValues values = {{"keys", RandomTable(shape, 0.5, config.seed)},
                            {"r_min", -clip},
                            {"r_max", clip}};
      if (o.Flag("values")) {
        values.Set("values", RandomTable(shape, 0.5, config.seed + 1));
      }
      return values;
    },
};

namespace {

constexpr Field kKeyOffsetFields[] = {
    {.name = "rows",
     .type = FieldType::kTable,
     .shape = "[heads,] 2M - 1, D",
     .sentence = "row (m - n) + M - 1 belongs to offset m - n"}};
constexpr ParamTraining kKeyOffsetTraining[] = {
    {.name = "rows", .start = Start::kXavier}};

}  // namespace

LOCUS_DESCRIPTOR(KeyOffset) = {
    .name = "key-offset",
    .class_name = "KeyOffset",
    .title = "Keys offset by relative position",
    .formula = "s = scale q.(k + p_(m-n))",
    .summary =
        "f_k = W_K x_n + rows[m - n + M - 1]: Shaw's keys without clipping.",
    .paper = "Su et al., RoFormer, 2021 (equation 5, keys only)",
    .models = "none",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "no row past the trained offsets: refused",
    .picture = Picture::kScore,
    .fields = kKeyOffsetFields,
    .training = kKeyOffsetTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<KeyOffset>(f.Table("rows"));
    },
    .settings = [](const Encoding& /*encoding*/) -> FieldValues { return {}; },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& /*options*/) -> FieldValues {
      CheckSize("the example's length", config.length);
      return {{"rows", RandomTable({config.heads, 2 * config.length - 1,
                                    config.head_dim},
                                   0.5, config.seed)}};
    },
};

}  // namespace locus

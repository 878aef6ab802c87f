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

constinit const EncodingInfo kShawInfo = {
    .name = "shaw",
    .class_name = "Shaw",
    .title = "Shaw relative keys and values",
    .formula = "s = scale q.(k + pK_r), o = sum p (v + pV_r), r = clip(m - n)",
    .paper =
        "Shaw et al., Self-Attention with Relative Position "
        "Representations, 2018",
    .models = "BERT relative_key, Music Transformer",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "all offsets beyond the clip look alike",
    .picture = Picture::kScore,
    .options = "clip, values=true|false",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("shaw", config);
      const int64_t clip = options.Integer("clip", 16);
      const bool with_values = options.Flag("values", true);
      options.Done();
      CheckSize("shaw option clip", clip);
      const std::vector<int64_t> shape = {config.heads, 2 * clip + 1,
                                          config.head_dim};
      return std::make_unique<Shaw>(
          RandomTable(shape, 0.5, config.seed),
          with_values ? RandomTable(shape, 0.5, config.seed + 1) : Tensor(),
          -clip, clip);
    },
};

constinit const EncodingInfo kKeyOffsetInfo = {
    .name = "key-offset",
    .class_name = "KeyOffset",
    .title = "Keys offset by relative position",
    .formula = "s = scale q.(k + p_(m-n))",
    .paper = "Su et al., RoFormer, 2021 (equation 5, keys only)",
    .models = "none",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "no row past the trained offsets: refused",
    .picture = Picture::kScore,
    .options = "",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader("key-offset", config).Done();
      CheckSize("the example's length", config.length);
      return std::make_unique<KeyOffset>(
          RandomTable({config.heads, 2 * config.length - 1, config.head_dim},
                      0.5, config.seed));
    },
};

}  // namespace locus

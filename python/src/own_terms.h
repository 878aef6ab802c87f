// Terms that a user has put together, as encodings: locus.Terms and
// locus.OffsetBias.
#ifndef LOCUS_PYTHON_SRC_OWN_TERMS_H_
#define LOCUS_PYTHON_SRC_OWN_TERMS_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/encoding.h"
#include "row_rule.h"

namespace locus::python {

// The arrays of Terms, by their names in Python, each a parameter if given.
// Tables may lack the axis of heads.
struct OwnArrays {
  Tensor input_add = {};         // [positions, model_dim]
  Tensor scale_rows = {};        // [heads or 1, positions]
  Tensor theta = {};             // [pairs] or [[heads,] pairs, axes]
  Tensor q_rows = {};            // [heads or 1, positions, E]
  Tensor k_rows = {};            // [heads or 1, positions, E]
  Tensor q_table = {};           // [heads or 1, rows, D]
  Tensor k_table = {};           // [heads or 1, rows, D]
  Tensor bias = {};              // [heads or 1, rows]
  Tensor slopes = {};            // [heads]
  Tensor future_slopes = {};     // [heads]
  Tensor profile_distance = {};  // [max_distance + 1]
  Tensor profile_gain = {};      // [positions]
  Tensor profile_base = {};      // [heads or 1, segments]
  Tensor profile_slope = {};     // [heads or 1, segments]
  Tensor v_table = {};           // [heads or 1, rows, Dv]
};

// A member of OwnArrays and its name.
struct OwnArray {
  const char* name;
  Tensor OwnArrays::*array;
};
std::span<const OwnArray> AllOwnArrays();
// Those that are found by offset.
std::span<const OwnArray> OwnTables();

// What is no array.
struct OwnSettings {
  std::optional<double> scale = {};  // empty: the call's, or 1 / sqrt(D)
  // Of the rows by position, all of them.
  int64_t first_position = 0;
  Rotation rotation = {};  // but for theta and rotary_dim, which the array says
  bool has_layout = false;
  std::vector<double> profile_knots = {};
  std::optional<ValueRotation> rotate_values = {};
  std::map<std::string, RowRule> rules = {};  // by table
};

class OwnTerms final : public Encoding {
 public:
  // Throws Error if arrays and settings do not fit each other.
  OwnTerms(OwnArrays arrays, OwnSettings settings);

  std::string_view Name() const override { return "terms"; }
  const OwnArrays& arrays() const { return arrays_; }
  const OwnSettings& settings() const { return settings_; }
  const std::map<std::string, BucketMap>& maps() const { return maps_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  std::optional<BucketTable> TableOf(const char* name,
                                     const Tensor& rows) const;
  std::optional<Bias> BiasOf() const;

  OwnArrays arrays_;
  OwnSettings settings_;
  std::map<std::string, BucketMap> maps_;
};

// s = scale q.k + table[h, m - n - first_offset].
class OffsetBias final : public Encoding {
 public:
  // table [heads or 1, n].
  OffsetBias(Tensor table, RowRule rule);

  std::string_view Name() const override { return "offset-bias"; }
  const RowRule& rule() const { return rule_; }
  const BucketMap& map() const { return map_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor table_;
  RowRule rule_;
  BucketMap map_;
};

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_OWN_TERMS_H_

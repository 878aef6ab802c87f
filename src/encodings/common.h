// What the encodings share: checks of parameters, example tables, options.
#ifndef LOCUS_SRC_ENCODINGS_COMMON_H_
#define LOCUS_SRC_ENCODINGS_COMMON_H_

#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "core/fail.h"
#include "locus/encoding.h"

namespace locus {

// The rows of the list: each encoding's file defines its own.
#define LOCUS_ENCODING(name, Class) extern const EncodingInfo k##Class##Info;
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING

// Fails unless `value` is a positive integer no larger than 2^24: sizes of
// heads and channels.
void CheckSize(const char* what, int64_t value);
// Fails unless `value` is finite and positive.
void CheckPositive(const char* what, double value);
// Fails unless every element is finite.
void CheckFinite(const char* what, const Tensor& tensor);
// Fails unless the call has this many query heads / channels.
void CheckCallHeads(const char* encoding, int64_t heads, const Shape& shape);
void CheckCallDim(const char* encoding, int64_t dim, const Shape& shape);

// Fails unless WithParams was given as many tensors as there are parameters.
void CheckParamCount(const Encoding& encoding, std::span<const Tensor> values);

// A [rows, dim] or [heads, rows, dim] table as [heads or 1, rows, dim].
Tensor WithHeadAxis(const Tensor& table);
// A gradient [heads or 1, rows, dim] in the sizes of `like`.
Tensor LikeParam(const Tensor& grad, const Tensor& like);

// f64 [positions, dim], each row filled by fill(position, row).
using RowFiller = std::function<void(int64_t position, double* row)>;
Tensor FillRows(std::span<const int64_t> positions, int64_t dim,
                const RowFiller& fill);
// The input_add term of a shape: one row a position that occurs.
Lowered LowerInput(const Shape& shape, int64_t dim, int64_t widen,
                   const RowFiller& fill);
// Terms with nothing but the default scale.
Lowered LowerPlain(const Shape& shape);

// Fails if lo .. hi are more numbers than a row of a table may have: somebody
// mixed far-apart positions in one call.
void CheckSpan(const char* what, int64_t lo, int64_t hi);

// A bias given by a formula, as a table with one bucket for each offset of the
// shape: value(h, offset).
BiasTable BiasByOffset(const Shape& shape,
                       const std::function<double(int64_t, int64_t)>& value);

// Normally distributed f64 values with the given deviation, from a seed: the
// same numbers on every platform.
Tensor RandomTable(std::vector<int64_t> shape, double deviation, uint64_t seed);

// Reads an example's options; Done() fails on one that nobody asked for.
class OptionReader {
 public:
  OptionReader(const char* encoding, const ExampleConfig& config)
      : encoding_(encoding), config_(config) {}

  double Number(const std::string& name, double fallback);
  int64_t Integer(const std::string& name, int64_t fallback);
  bool Flag(const std::string& name, bool fallback);
  std::string Choice(const std::string& name, const std::string& fallback,
                     std::initializer_list<const char*> choices);
  bool Has(const std::string& name);
  void Done() const;

 private:
  const std::string* Find(const std::string& name);

  const char* encoding_;
  const ExampleConfig& config_;
  std::set<std::string> asked_;
};

// The options "layout=interleaved|halves" of the rotary family.
PairLayout LayoutOption(OptionReader& options);

}  // namespace locus

#endif  // LOCUS_SRC_ENCODINGS_COMMON_H_

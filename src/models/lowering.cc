#include "models/lowering.h"

#include "core/fail.h"

namespace locus::models {

void SetQueryRows(const Shape& shape, int64_t heads, int64_t lowest,
                  const QueryFactor& g, Scale& scale) {
  if (shape.min_q_pos < lowest) {
    Fail("the query's factor needs positions of at least {}, got {}", lowest,
         shape.min_q_pos);
  }
  // 128 MiB of rows.
  constexpr int64_t kMostNumbers = int64_t{1} << 24;
  const int64_t positions = shape.max_q_pos - shape.min_q_pos + 1;
  if (positions > kMostNumbers / heads) {
    Fail("query positions {} .. {} are too far apart for rows of {} heads",
         shape.min_q_pos, shape.max_q_pos, heads);
  }
  scale.rows = Tensor::Zeros(DType::kF64, {heads, positions});
  scale.first_position = shape.min_q_pos;
  double* row = scale.rows.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < positions; ++i) {
      row[h * positions + i] = g(h, shape.min_q_pos + i);
    }
  }
}

std::shared_ptr<const Encoding> WithQueryRows(
    std::shared_ptr<const Encoding> base, int64_t heads, QueryFactor g) {
  const std::string name(base->Name());
  return std::make_shared<Lowering>(
      name, [base = std::move(base), heads, g = std::move(g)](const Shape& s) {
        Terms terms = base->Lower(s).terms;
        SetQueryRows(s, heads, /*lowest=*/0, g, terms.scale);
        return terms;
      });
}

}  // namespace locus::models

#include "ring/agreement/extreme_call.h"

#include <algorithm>
#include <functional>

namespace locus::ring {

ExtremeCall::ExtremeCall(const Call& call, const AttentionOptions& given,
                         const std::vector<Range>& q,
                         const std::vector<Range>& k) {
  const auto add = [](const Range& range, std::vector<int64_t>& positions) {
    positions.push_back(range.Empty() ? 0 : range.lo);
    positions.push_back(range.Empty() ? 0 : range.hi);
  };
  for (size_t b = 0; b < q.size(); ++b) {
    add(q[b], q_positions_);
    add(k[b], k_positions_);
    key_lengths_.push_back(k[b].Empty() ? 0 : 2);
  }
  const bool queries = std::ranges::any_of(q, std::not_fn(&Range::Empty));
  if (!queries) q_positions_.clear();
  if (!given.prefix_lengths.empty()) prefix_lengths_.resize(q.size());
  options_ = {.causal = given.causal,
              .scale = given.scale,
              .window = given.window,
              .chunk = given.chunk,
              .q_positions = q_positions_,
              .k_positions = k_positions_,
              .key_lengths = key_lengths_,
              .prefix_lengths = prefix_lengths_,
              .dropout = given.dropout,
              .return_weights = given.return_weights};
  static constexpr float kNothing = 0.0F;
  const auto tensor = [&call](int64_t heads, int64_t length, int64_t dim) {
    return Tensor::Borrow(DType::kF32, {call.batch, heads, length, dim},
                          {0, 0, 0, 0}, &kNothing);
  };
  const Shape& s = call.shape;
  const int64_t rows = queries ? 2 : 0;
  q_ = tensor(s.q_heads, rows, s.head_dim);
  k_ = tensor(s.kv_heads, 2, s.head_dim);
  v_ = tensor(s.kv_heads, 2, call.ValueDim());
  if (call.table_dim > 0) {
    options_.table_queries = tensor(s.q_heads, rows, call.table_dim);
  }
}

Shape ExtremeCall::ShapeOfWhole() const {
  Shape shape = CallShape(q_, k_, v_, options_);
  shape.rising = true;  // two tokens cannot tell
  return shape;
}

void ExtremeCall::CheckDriver(const Terms& terms, Pass pass) const {
  AttentionOptions o = options_;
  o.scale.reset();  // the terms include it
  ExplainCall(q_, k_, v_, terms, o, pass);
}

}  // namespace locus::ring

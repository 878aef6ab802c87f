#include "lab/train/offset_table.h"

#include <utility>

namespace locus::lab {

OffsetTable::OffsetTable(OffsetTerm term, int64_t first, Tensor table)
    : term_(term), first_(first), table_(std::move(table)) {}

Lowered OffsetTable::Lower(const Shape& shape) const {
  const BucketMap buckets =
      BucketMap::Identity(first_, first_ + table_.size(1) - 1);
  Lowered lowered;
  lowered.terms.scale.scale = shape.ScaleOr();
  switch (term_) {
    case OffsetTerm::kBias:
      lowered.terms.bias = BiasTable{.values = table_, .buckets = buckets};
      break;
    case OffsetTerm::kKeys:
      lowered.terms.q_table = BucketTable{.rows = table_, .buckets = buckets};
      break;
    case OffsetTerm::kValues:
      lowered.terms.v_table = BucketTable{.rows = table_, .buckets = buckets};
      break;
  }
  return lowered;
}

std::unique_ptr<Encoding> OffsetTable::WithParams(
    std::span<const Tensor> values) const {
  return std::make_unique<OffsetTable>(term_, first_, values[0]);
}

ParamGrads OffsetTable::PullBack(const Shape& /*shape*/,
                                 const TermGrads& grads) const {
  switch (term_) {
    case OffsetTerm::kBias:
      return {{"table", std::get<BiasTableGrads>(*grads.bias).values}};
    case OffsetTerm::kKeys:
      return {{"table", grads.q_table}};
    case OffsetTerm::kValues:
      break;
  }
  return {{"table", grads.v_table}};
}

}  // namespace locus::lab

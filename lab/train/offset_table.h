// A table by offset as an encoding: what a function of the offset gives.
#ifndef LOCUS_LAB_TRAIN_OFFSET_TABLE_H_
#define LOCUS_LAB_TRAIN_OFFSET_TABLE_H_

#include <cstdint>

#include "locus/encoding.h"

namespace locus::lab {

// Where the table enters: s + B, s + scale q.T, or o + sum p T.
enum class OffsetTerm : uint8_t { kBias, kKeys, kValues };

// One parameter, the table: [heads, n], or [heads or 1, n, D] for keys and
// values. Its first column belongs to the offset `first`; another offset than
// its own is an error.
class OffsetTable final : public Encoding {
 public:
  OffsetTable(OffsetTerm term, int64_t first, Tensor table);

  std::string_view Name() const override { return "offset-table"; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override { return {{"table", table_}}; }
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  OffsetTerm term_;
  int64_t first_;
  Tensor table_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_OFFSET_TABLE_H_

// A table by offset as an encoding: the values of a function of the offset.
#ifndef LOCUS_LAB_TRAIN_OFFSET_TABLE_H_
#define LOCUS_LAB_TRAIN_OFFSET_TABLE_H_

#include <cstdint>

#include "locus/encoding.h"

namespace locus::lab {

// How the table is used: s + B, s + scale q.T, or o + sum p T.
enum class OffsetTerm : uint8_t { kBias, kKeys, kValues };

// Its parameter is the table: [heads, n], or [heads or 1, n, D] for keys and
// values. The first column is for offset `first`; offsets outside the table are
// an error.
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

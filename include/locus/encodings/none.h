// No position at all (NoPE): plain attention.
#ifndef LOCUS_ENCODINGS_NONE_H_
#define LOCUS_ENCODINGS_NONE_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class NoPosition final : public Encoding {
 public:
  std::string_view Name() const override { return "none"; }
  Lowered Lower(const Shape& shape) const override;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_NONE_H_

// xPos: RoPE whose pairs also decay with the offset.
#ifndef LOCUS_ENCODINGS_XPOS_H_
#define LOCUS_ENCODINGS_XPOS_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

struct XPosOptions {
  double base = 10000.0;
  double scale_base = 512.0;
  double gamma = 0.4;
};

class XPos final : public Encoding {
 public:
  XPos(int64_t head_dim, PairLayout layout, XPosOptions options = {});

  std::string_view Name() const override { return "xpos"; }
  int64_t head_dim() const { return head_dim_; }
  PairLayout layout() const { return rotation_.layout; }
  const XPosOptions& options() const { return options_; }
  Lowered Lower(const Shape& shape) const override;

 private:
  Rotation rotation_;
  int64_t head_dim_;
  XPosOptions options_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_XPOS_H_

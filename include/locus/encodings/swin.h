// Swin: a bias by 2-D offset inside a window.
#ifndef LOCUS_ENCODINGS_SWIN_H_
#define LOCUS_ENCODINGS_SWIN_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class SwinBias final : public Encoding {
 public:
  // table [(2h - 1)(2w - 1), heads] as checkpoints store it; positions are
  // raster indices y * width + x. With `cls`, position 0 is a [CLS] token, the
  // raster starts at 1 and the table has three more rows: cls to token, token
  // to cls, cls to cls (BEiT).
  SwinBias(Tensor table, int64_t height, int64_t width, bool cls = false);

  std::string_view Name() const override { return "swin"; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  bool cls() const { return cls_; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor table_;
  int64_t height_, width_;
  bool cls_;
  BucketMap buckets_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_SWIN_H_

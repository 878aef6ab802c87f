// An encoding with a query temperature, or with another rotation.
#ifndef LOCUS_SRC_MODELS_TUNED_H_
#define LOCUS_SRC_MODELS_TUNED_H_

#include <memory>
#include <optional>

#include "locus/encoding.h"
#include "locus/models.h"

namespace locus::models {

// What the encodings have no option for: a temperature without rotation (Llama
// 4), M-RoPE of a part of the head or with scaled frequencies (Qwen2.5-VL),
// rotation by negative angles (nanochat).
class Tuned final : public Encoding {
 public:
  Tuned(std::shared_ptr<const Encoding> base, QueryTemperature temperature,
        std::optional<Rotation> rotation = {});

  std::string_view Name() const override { return base_->Name(); }
  Lowered Lower(const Shape& shape) const override;

 private:
  std::shared_ptr<const Encoding> base_;
  QueryTemperature temperature_;
  std::optional<Rotation> rotation_;
};

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_TUNED_H_

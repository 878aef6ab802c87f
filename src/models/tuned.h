// An encoding with a query temperature, or with frequencies of another.
#ifndef LOCUS_SRC_MODELS_TUNED_H_
#define LOCUS_SRC_MODELS_TUNED_H_

#include <memory>
#include <optional>

#include "locus/encoding.h"
#include "locus/models.h"

namespace locus::models {

// What the encodings themselves have no option for: a temperature where nothing
// rotates (Llama 4), and scaled frequencies under M-RoPE (Qwen2.5-VL).
class Tuned final : public Encoding {
 public:
  Tuned(std::shared_ptr<const Encoding> base, QueryTemperature temperature,
        std::optional<Rotation> frequencies = {});

  std::string_view Name() const override { return base_->Name(); }
  Lowered Lower(const Shape& shape) const override;

 private:
  std::shared_ptr<const Encoding> base_;
  QueryTemperature temperature_;
  std::optional<Rotation> frequencies_;  // theta, gain and angles count
};

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_TUNED_H_

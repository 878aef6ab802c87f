#include "models/tuned.h"

namespace locus::models {

Tuned::Tuned(std::shared_ptr<const Encoding> base, QueryTemperature temperature,
             std::optional<Rotation> rotation)
    : base_(std::move(base)),
      temperature_(temperature),
      rotation_(std::move(rotation)) {}

Lowered Tuned::Lower(const Shape& shape) const {
  Lowered lowered = base_->Lower(shape);
  if (temperature_.beta != 0.0) {
    temperature_.Set(shape, lowered.terms.scale);
  }
  if (rotation_ && lowered.terms.rotate) lowered.terms.rotate = rotation_;
  return lowered;
}

}  // namespace locus::models

#include "models/tuned.h"

namespace locus::models {

Tuned::Tuned(std::shared_ptr<const Encoding> base, QueryTemperature temperature,
             std::optional<Rotation> frequencies)
    : base_(std::move(base)),
      temperature_(temperature),
      frequencies_(std::move(frequencies)) {}

Lowered Tuned::Lower(const Shape& shape) const {
  Lowered lowered = base_->Lower(shape);
  if (temperature_.beta != 0.0) {
    Scale& scale = lowered.terms.scale;
    scale.beta = temperature_.beta;
    scale.shift = temperature_.shift;
    scale.span = temperature_.span;
  }
  if (frequencies_ && lowered.terms.rotate) {
    Rotation& rotate = *lowered.terms.rotate;
    rotate.theta = frequencies_->theta;
    rotate.gain = frequencies_->gain;
    rotate.angles = frequencies_->angles;
  }
  return lowered;
}

}  // namespace locus::models

// No position.
//
//   s_ij = scale * q_i.k_j
//
// Without a mask, attention is then equivariant to permutations; under a causal
// mask, only the number of visible keys reveals the position of a query.
// Kazemnejad et al., "The Impact of Positional Encoding on Length
// Generalization in Transformers" (2023).
#include "locus/encodings/none.h"

#include "encodings/common.h"

namespace locus {

Lowered NoPosition::Lower(const Shape& shape) const {
  return LowerPlain(shape);
}

LOCUS_DESCRIPTOR(NoPosition) = {
    .name = "none",
    .class_name = "NoPosition",
    .title = "No position (NoPE)",
    .formula = "s = scale q.k",
    .summary = "Plain attention: no position at all.",
    .paper =
        "Kazemnejad et al., The Impact of Positional Encoding on Length "
        "Generalization in Transformers, 2023",
    .models = "SmolLM3 and Llama 4 (some layers)",
    .reference = Reference::kNone,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "nothing to extrapolate; a causal mask is all it has",
    .picture = Picture::kScore,
    .construct = [](const FieldValues& /*fields*/)
        -> std::unique_ptr<Encoding> { return std::make_unique<NoPosition>(); },
    .settings = [](const Encoding& /*encoding*/) -> FieldValues { return {}; },
    .sample = [](const ExampleConfig& /*config*/,
                 const FieldValues& /*options*/) -> FieldValues { return {}; },
};

}  // namespace locus

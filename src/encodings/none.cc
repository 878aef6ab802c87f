// No position.
//
//   s_ij = scale * q_i.k_j
//
// Without a mask, attention is then equivariant to permutations; under a causal
// mask the number of visible keys alone tells where a query stands.
// Kazemnejad et al., "The Impact of Positional Encoding on Length
// Generalization in Transformers" (2023).
#include "locus/encodings/none.h"

#include "encodings/common.h"

namespace locus {

Lowered NoPosition::Lower(const Shape& shape) const {
  return LowerPlain(shape);
}

constinit const EncodingInfo kNoPositionInfo = {
    .name = "none",
    .class_name = "NoPosition",
    .title = "No position (NoPE)",
    .formula = "s = scale q.k",
    .paper =
        "Kazemnejad et al., The Impact of Positional Encoding on Length "
        "Generalization in Transformers, 2023",
    .models = "SmolLM3 and Llama 4 (some layers)",
    .reference = Reference::kNone,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "nothing to extrapolate; a causal mask is all it has",
    .picture = Picture::kScore,
    .options = "",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader("none", config).Done();
      return std::make_unique<NoPosition>();
    },
};

}  // namespace locus

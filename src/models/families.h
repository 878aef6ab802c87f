// The table of families: model types, what they are, and who reads them.
#ifndef LOCUS_SRC_MODELS_FAMILIES_H_
#define LOCUS_SRC_MODELS_FAMILIES_H_

#include <vector>

#include "models/reader.h"

namespace locus::models {

struct Family {
  FamilyInfo info;
  void (*read)(Reader& r);
};

// Each file of families lists its own.
std::vector<Family> AbsoluteFamilies();    // learned tables and sinusoids
std::vector<Family> BucketFamilies();      // T5's buckets
std::vector<Family> AlibiFamilies();       // linear biases
std::vector<Family> RelativeFamilies();    // Transformer-XL, XLNet, DeBERTa
std::vector<Family> VisionFamilies();      // ViT, Swin, BEiT
std::vector<Family> RotaryFamilies();      // RoPE alike in every layer
std::vector<Family> LayeredFamilies();     // RoPE that differs between layers
std::vector<Family> LatentFamilies();      // DeepSeek: a rotated tail
std::vector<Family> MultimodalFamilies();  // M-RoPE

const std::vector<Family>& AllFamilies();
// Throws Error with what would be needed if no family has the type.
const Family& FindFamily(const std::string& model_type);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_FAMILIES_H_

// The table of families: their model types, descriptions and readers.
#ifndef LOCUS_SRC_MODELS_FAMILIES_H_
#define LOCUS_SRC_MODELS_FAMILIES_H_

#include <functional>
#include <vector>

#include "models/reader.h"

namespace locus::models {

struct Family {
  FamilyInfo info;
  std::function<void(Reader& r)> read;
  // Whether keys that a file omits are filled in from the config class of its
  // model type before `read` sees them; otherwise `read` knows the defaults.
  bool class_defaults = false;
};

// Each family_*.cc file lists its own.
std::vector<Family> AbsoluteFamilies();    // learned tables and sinusoids
std::vector<Family> BucketFamilies();      // T5's buckets
std::vector<Family> AlibiFamilies();       // linear biases
std::vector<Family> RelativeFamilies();    // Transformer-XL, XLNet, DeBERTa
std::vector<Family> VisionFamilies();      // ViT, Swin, BEiT
std::vector<Family> RotaryFamilies();      // RoPE, the same in every layer
std::vector<Family> LayeredFamilies();     // RoPE that differs between layers
std::vector<Family> LatentFamilies();      // DeepSeek: a rotated tail
std::vector<Family> MultimodalFamilies();  // M-RoPE
std::vector<Family> RuledFamilies();       // RoPE, described by RotaryRules
std::vector<Family> HybridFamilies();      // attention in some layers only
std::vector<Family> AxialFamilies();       // vision towers, 2-D RoPE
std::vector<Family> TableFamilies();       // learned tables, by rows of keys
std::vector<Family> LoweredFamilies();     // terms that no encoding has
std::vector<Family> SpeechFamilies();      // conformers and similar
std::vector<Family> WindowFamilies();      // SAM, Swin V2: windows of patches
std::vector<Family> RefusedFamilies();     // known, not read, and why

// What others took over from GPT-2 (family_absolute.cc): the spellings of its
// config, and its flags of the softmax scale.
SizeKeys Gpt2Sizes();
void ReadGpt2Scale(Reader& r);

const std::vector<Family>& AllFamilies();
// Throws Error with what would be needed if no family has the type.
const Family& FindFamily(const std::string& model_type);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_FAMILIES_H_

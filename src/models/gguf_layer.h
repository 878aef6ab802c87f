// A layer of a GGUF file whose architecture is read directly.
#ifndef LOCUS_SRC_MODELS_GGUF_LAYER_H_
#define LOCUS_SRC_MODELS_GGUF_LAYER_H_

#include "models/gguf_config.h"
#include "models/reader.h"

namespace locus::models {

void ReadGgufLayer(Reader& r, const GgufConfig& config);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_LAYER_H_

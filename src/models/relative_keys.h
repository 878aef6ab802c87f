// Transformer-XL's relative keys, computed from the tables of a checkpoint.
#ifndef LOCUS_SRC_MODELS_RELATIVE_KEYS_H_
#define LOCUS_SRC_MODELS_RELATIVE_KEYS_H_

#include <string>

#include "models/reader.h"

namespace locus::models {

// q.k + q.W s + u.k + v.W s, with s the sinusoid of the clamped offset.
struct XlTables {
  NeededTensor w, u, v;
  bool w_is_transposed = false;  // w stored [model_dim, heads, D]
  bool interleaved = false;      // sine and cosine alternate in s
  int64_t heads = 0, dim = 0, model_dim = 0;
  int64_t reach = 0;   // positions that the rows must cover
  int64_t clamp = -1;  // negative: no clamp
};

Scheme XlScheme(const XlTables& t, std::string words);

// The requested number of positions, or that of the training.
int64_t Reach(Reader& r, int64_t trained);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_RELATIVE_KEYS_H_

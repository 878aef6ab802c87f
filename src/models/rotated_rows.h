// Finds the rows of a checkpoint's tensors that are heads of q and k.
//
//   q_proj, k_proj; query, key; wq, wk   heads, one after another
//   q_b_proj                             the same, for latent attention
//   kv_a_proj_with_mqa                   the latent, then one rotated key
//   query_key_value, wqkv                for each key head: its q, k, v
//   query_key_value of ChatGLM,
//   qkv_proj, Wqkv, W_pack               all q, all k, all v
//   qkv_proj of CodeGen                  four times a quarter of q, of v, of k
//   q_norm, k_norm; q_layernorm, ...     one number per channel, of one head or
//   all
#ifndef LOCUS_SRC_MODELS_ROTATED_ROWS_H_
#define LOCUS_SRC_MODELS_ROTATED_ROWS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "locus/checkpoint.h"

namespace locus::models {

enum class Holds { kQuery, kKey, kFused, kLatentKey, kQueryNorm, kKeyNorm };

struct Role {
  Holds holds = Holds::kQuery;
  std::string_view component = {};  // of the name: "q_proj"
  int64_t layer = 0;
};

// The role of a tensor of this name for q and k; nothing if it has none, or
// belongs to a part other than the text model. Throws Error if it affects q or
// k in a form without rows of heads: quantised, an adapter, or outside the
// layers.
std::optional<Role> RoleOf(std::string_view name);

struct RotatedRows {
  int64_t rows = 0;                 // of the tensor
  std::vector<int64_t> heads = {};  // the first row of each head
  HeadRows head = {};               // any one of the heads
};

// Throws Error if the shape does not match the layer's config.
RotatedRows RowsOf(const TensorEntry& tensor, const Role& role,
                   const LayerPosition& layer);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_ROTATED_ROWS_H_

// The index of a checkpoint that is split into several files.
#ifndef LOCUS_SRC_MODELS_SHARDS_H_
#define LOCUS_SRC_MODELS_SHARDS_H_

#include <map>
#include <string>
#include <vector>

namespace locus::models {

struct ShardIndex {
  std::string text = {};  // verbatim contents of the file
  std::map<std::string, std::vector<std::string>> tensors = {};  // by file
};

// The tensors of each file that model.safetensors.index.json names. Files must
// be plain names in the folder of the index; anything else throws Error.
ShardIndex ReadIndex(const std::string& path);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_SHARDS_H_

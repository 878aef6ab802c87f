// Weights in safetensors and GGUF files: memory-mapped, never copied.
//
// Files are not trusted: lengths past the end, overlapping tensors, sizes that
// overflow and keys that repeat are refused with one sentence, and nothing is
// allocated by what a file claims, only by what it holds.
#ifndef LOCUS_CHECKPOINT_H_
#define LOCUS_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/models.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {
namespace LOCUS_API models {

struct TensorEntry {
  std::string name = {};
  std::string type = {};            // as the file says: "BF16", "Q4_K"
  std::vector<int64_t> shape = {};  // outermost first
  const std::byte* data = nullptr;  // in the mapping
  uint64_t bytes = 0;
};

class Checkpoint {
 public:
  // A .safetensors file, the .index.json of a sharded one, or a .gguf file.
  static Checkpoint Open(const std::string& path);
  // The same from bytes that `owner` keeps alive; `name` is for messages.
  static Checkpoint FromSafetensors(std::span<const std::byte> bytes,
                                    std::shared_ptr<const void> owner,
                                    const std::string& name);
  static Checkpoint FromGguf(std::span<const std::byte> bytes,
                             std::shared_ptr<const void> owner,
                             const std::string& name);

  // In the order of their data in the file.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Null if there is none of this name.
  const TensorEntry* Find(std::string_view name) const;

  // A view of a tensor. The name may lack the model's prefix in the file, or
  // have one more there. Throws Error if there is no such tensor, if its shape
  // is another, or if its type is not F32, F64, BF16 or F16.
  Tensor Get(const NeededTensor& need) const;
  Tensor Get(const std::string& name) const;
  // Get, for Build. The checkpoint must outlive the lookup, not the encoding.
  TensorLookup Lookup() const;

 private:
  void Index();
  Tensor View(const TensorEntry& entry) const;

  std::string name_;
  std::vector<TensorEntry> tensors_;
  std::vector<size_t> by_name_;  // sorted by name
  std::vector<std::shared_ptr<const void>> owners_;
};

// The position of a layer from a GGUF file: metadata, and its own tables of
// frequencies. Keys count as in FromConfig.
LayerPosition FromGguf(const std::string& path,
                       const ReadOptions& options = {});
LayerPosition FromGguf(std::span<const std::byte> bytes,
                       const std::string& name, const ReadOptions& options);

// ------------------------------------------------------------ pair layouts

// Which rows of a projection belong together.
struct HeadRows {
  int64_t heads = 1;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  int64_t first_channel = 0;  // of the rotated ones
};

// The row of the source, [heads * head_dim], that each row of the result takes
// when weights for one pair layout become weights for the other.
std::vector<int64_t> LayoutPermutation(const HeadRows& rows, PairLayout from,
                                       PairLayout to);

// A weight [heads * head_dim, in] or bias [heads * head_dim], rows reordered.
// q and k projections of grouped heads have different `heads`.
Tensor ConvertLayout(const Tensor& weight, const HeadRows& rows,
                     PairLayout from, PairLayout to);

struct ConvertReport {
  int64_t layers = 0;   // that were changed
  int64_t tensors = 0;  // that were changed
  int64_t files = 0;    // that were written, but for the index
};

// Rewrites a safetensors file for the other pair layout: the q and k
// projections, separate or fused with v, their biases and their norms by
// channel, of every layer that rotates. Everything else stays byte for byte.
// Where `in` is the .index.json of a model in several files, `out` becomes a
// folder with all of them and the index. The config says the layout of `in`,
// unless `from` does. Written as locus/files.h says: whole or not at all.
ConvertReport ConvertLayoutFile(const std::string& in, const std::string& out,
                                const ModelConfig& config, PairLayout to,
                                std::optional<PairLayout> from = {});

}  // namespace models
}  // namespace locus

#endif  // LOCUS_CHECKPOINT_H_

// Weights in safetensors and GGUF files: memory-mapped, never copied.
//
// Files are untrusted: lengths past the end, overlapping tensors, overflowing
// sizes and repeated keys are refused with an Error of one sentence, and memory
// is allocated for what a file contains, never for what it claims.
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

// A tensor in a file. `data` is valid as long as the Checkpoint.
struct TensorEntry {
  std::string name = {};
  std::string type = {};            // as in the file: "BF16", "Q4_K"
  std::vector<int64_t> shape = {};  // outermost first
  const std::byte* data = nullptr;  // in the mapping
  uint64_t bytes = 0;
};

class Checkpoint {
 public:
  // A .safetensors file, the .index.json of a sharded model, or a .gguf file.
  // Throws Error if it cannot be read.
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
  // The tensor with this name, or null.
  const TensorEntry* Find(std::string_view name) const;

  // A view of a tensor, which keeps the mapping alive. In the file the name may
  // lack the model's prefix or have one more. Throws Error if there is no such
  // tensor, if its shape differs, or if its type is not F32, F64, BF16 or F16.
  Tensor Get(const NeededTensor& need) const;
  Tensor Get(const std::string& name) const;
  // Get as an argument for Build. The checkpoint must outlive the lookup, but
  // not the encoding.
  TensorLookup Lookup() const;

 private:
  void Index();
  Tensor View(const TensorEntry& entry) const;

  std::string name_;
  std::vector<TensorEntry> tensors_;
  std::vector<size_t> by_name_;  // sorted by name
  std::vector<std::shared_ptr<const void>> owners_;
};

// One layer from a GGUF file, from its metadata and frequency tables, as
// strictly as FromConfig.
LayerPosition FromGguf(const std::string& path,
                       const ReadOptions& options = {});
LayerPosition FromGguf(std::span<const std::byte> bytes,
                       const std::string& name, const ReadOptions& options);

// ------------------------------------------------------------ pair layouts

// How the rows of a projection are divided into heads.
struct HeadRows {
  int64_t heads = 1;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  int64_t first_channel = 0;  // of the rotated ones
};

// For each row of the result, the row of the source that it takes when weights
// are converted from one pair layout to the other: [heads * head_dim].
std::vector<int64_t> LayoutPermutation(const HeadRows& rows, PairLayout from,
                                       PairLayout to);

// A copy of a weight [heads * head_dim, in] or bias [heads * head_dim] with its
// rows reordered. With grouped heads, q and k projections differ in `heads`.
Tensor ConvertLayout(const Tensor& weight, const HeadRows& rows,
                     PairLayout from, PairLayout to);

struct ConvertReport {
  int64_t layers = 0;   // changed
  int64_t tensors = 0;  // changed
  int64_t files = 0;    // written, without the index
};

// Rewrites a safetensors file for the pair layout `to`: the q and k projections
// (separate or fused with v), their biases and their per-channel norms in every
// layer with rotary positions. All other bytes are copied unchanged. If `in` is
// the .index.json of a sharded model, `out` becomes a folder with all files and
// the index. The layout of `in` is that of the config unless `from` overrides
// it. The output is atomic, as described in locus/files.h.
ConvertReport ConvertLayoutFile(const std::string& in, const std::string& out,
                                const ModelConfig& config, PairLayout to,
                                std::optional<PairLayout> from = {});

}  // namespace models
}  // namespace locus

#endif  // LOCUS_CHECKPOINT_H_

// Rewrites checkpoints for the other pair layout: a single file, or all files
// of an index.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "core/fail.h"
#include "locus/checkpoint.h"
#include "locus/files.h"
#include "locus/text.h"
#include "models/gguf.h"
#include "models/read_file.h"
#include "models/rotated_rows.h"
#include "models/safetensors.h"
#include "models/shards.h"

namespace locus::models {
namespace {

namespace fs = std::filesystem;

// Bytes are copied in pieces of this size.
constexpr uint64_t kPiece = uint64_t{4} << 20;

class Conversion {
 public:
  Conversion(const ModelConfig& config, PairLayout to,
             std::optional<PairLayout> from)
      : config_(config), to_(to) {
    options_.layout = from;
    const LayerPosition first = config_.Layer(options_);
    layers_.resize(static_cast<size_t>(first.layers));
  }

  // Copies a file of an index, permuting the rows of rotated heads. `names`
  // must be among its tensors.
  void Shard(const std::string& in, const std::string& out,
             const std::vector<std::string>& names) {
    const Source source(in);
    std::vector<std::string_view> known;
    for (const auto& tensor : source.tensors)
      known.push_back(tensor.entry.name);
    std::ranges::sort(known);
    for (const std::string& name : names) {
      if (!std::ranges::binary_search(known, std::string_view(name))) {
        Fail("the index puts tensor '{}' into '{}', which does not have it",
             Printable(name), in);
      }
    }
    Copy(source, PlanFor(source.tensors), out);
  }

  // The same for a standalone file, which must have something to convert.
  void File(const std::string& in, const std::string& out) {
    const Source source(in);
    const auto plan = PlanFor(source.tensors);
    RequireWhole(in);
    Copy(source, plan, out);
  }

  // Throws Error if there was nothing to convert, or if a layer had only one of
  // q and k, since converting one without the other would be wrong.
  void RequireWhole(const std::string& in) {
    for (const auto& [layer, sides] : changed_) {
      if (!sides.query || !sides.key) {
        Fail(
            "layer {} in '{}' has {} but no {} that is known; a model in "
            "several files is converted by its index",
            layer, in,
            sides.query ? "q"
            : sides.key ? "k"
                        : "norms",
            sides.query ? "k" : "q");
      }
    }
    if (report_.tensors != 0) return;
    bool rotates = false;
    for (size_t i = 0; i < layers_.size() && !rotates; ++i) {
      rotates = Layer("", static_cast<int64_t>(i)).rotary.has_value();
    }
    Fail("'{}' has nothing to convert: {}", in,
         !rotates ? "the config has no layer that rotates"
                  : "no q and k weights of the other layout are in it");
  }

  const ConvertReport& report() const { return report_; }

 private:
  // A file and its parsed header. Read in pieces rather than mapped, since it
  // may be truncated meanwhile.
  struct Source {
    explicit Source(const std::string& path) : file(path) {
      std::array<std::byte, kSafetensorsPrefix> prefix{};
      if (file.size() < prefix.size()) {
        Fail("'{}' has {} bytes; a safetensors file has more", path,
             file.size());
      }
      file.Read(0, prefix);
      if (IsGguf(prefix)) {
        Fail("'{}' is a GGUF file; only safetensors files are rewritten", path);
      }
      uint64_t header_size = 0;
      std::memcpy(&header_size, prefix.data(), sizeof header_size);
      const uint64_t left = file.size() - prefix.size();
      CheckHeaderSize(header_size, left, path);
      std::string header(static_cast<size_t>(header_size), '\0');
      file.Read(prefix.size(), std::as_writable_bytes(std::span(header)));
      data = prefix.size() + header_size;
      tensors = ReadSafetensorsHeader(header, left - header_size, path);
    }
    PieceReader file;
    uint64_t data = 0;  // where the data begin
    std::vector<PlacedTensor> tensors = {};
  };
  // Which projections of a layer were found.
  struct Sides {
    bool query = false;
    bool key = false;
  };
  struct Change {
    const PlacedTensor* tensor;
    std::vector<int64_t> order;  // source row of each row
  };

  // The changes, in the order of the file.
  std::vector<Change> PlanFor(const std::vector<PlacedTensor>& tensors) {
    std::vector<Change> plan;
    for (const PlacedTensor& tensor : tensors) {
      const TensorEntry& entry = tensor.entry;
      const auto role = RoleOf(entry.name);
      if (!role) continue;
      const LayerPosition& layer = Layer(entry.name, role->layer);
      if (!layer.rotary || layer.rotary->layout == to_) continue;
      plan.push_back(
          {&tensor, Order(RowsOf(entry, *role, layer), layer.rotary->layout)});
      ++report_.tensors;
      Sides& sides = changed_[role->layer];
      const bool fused = role->holds == Holds::kFused;
      sides.query |= fused || role->holds == Holds::kQuery;
      sides.key |= fused || role->holds == Holds::kKey ||
                   role->holds == Holds::kLatentKey;
    }
    report_.layers = static_cast<int64_t>(changed_.size());
    return plan;
  }

  void Copy(const Source& source, const std::vector<Change>& plan,
            const std::string& out) {
    OutputFile result(out);
    uint64_t at = 0;
    for (const auto& [tensor, order] : plan) {
      CopyBytes(source.file, at, source.data + tensor->begin, result);
      CopyRows(source, *tensor, order, result);
      at = source.data + tensor->end;
    }
    CopyBytes(source.file, at, source.file.size(), result);
    result.Finish();
    ++report_.files;
  }

  static void CopyBytes(const PieceReader& in, uint64_t begin, uint64_t end,
                        OutputFile& out) {
    std::vector<std::byte> piece(
        static_cast<size_t>(std::min(kPiece, end - begin)));
    while (begin < end) {
      const std::span<std::byte> some(
          piece.data(), static_cast<size_t>(std::min(kPiece, end - begin)));
      in.Read(begin, some);
      out.Write(some);
      begin += some.size();
    }
  }

  static void CopyRows(const Source& source, const PlacedTensor& tensor,
                       const std::vector<int64_t>& order, OutputFile& out) {
    std::vector<std::byte> rows(tensor.entry.bytes);
    source.file.Read(source.data + tensor.begin, rows);
    const size_t row = rows.size() / order.size();
    std::vector<std::byte> piece;
    for (int64_t from : order) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(
                                            static_cast<size_t>(from) * row);
      piece.insert(piece.end(), first,
                   first + static_cast<std::ptrdiff_t>(row));
      if (piece.size() < kPiece) continue;
      out.Write(piece);
      piece.clear();
    }
    out.Write(piece);
  }

  const LayerPosition& Layer(const std::string& tensor, int64_t layer) {
    if (layer >= static_cast<int64_t>(layers_.size())) {
      Fail("tensor '{}' is of layer {}, and the config has {} layers",
           Printable(tensor), layer, layers_.size());
    }
    auto& known = layers_[static_cast<size_t>(layer)];
    if (!known) {
      options_.layer = layer;
      known = config_.Layer(options_);
    }
    return *known;
  }

  std::vector<int64_t> Order(const RotatedRows& rows, PairLayout from) const {
    std::vector<int64_t> order(static_cast<size_t>(rows.rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto inside = LayoutPermutation(rows.head, from, to_);
    for (int64_t head : rows.heads) {
      for (size_t c = 0; c < inside.size(); ++c) {
        order[static_cast<size_t>(head) + c] = head + inside[c];
      }
    }
    return order;
  }

  ModelConfig config_;
  PairLayout to_;
  ReadOptions options_;
  std::vector<std::optional<LayerPosition>> layers_;  // as far as needed
  std::map<int64_t, Sides> changed_;                  // by layer
  ConvertReport report_;
};

}  // namespace

ConvertReport ConvertLayoutFile(const std::string& in, const std::string& out,
                                const ModelConfig& config, PairLayout to,
                                std::optional<PairLayout> from) {
  Conversion conversion(config, to, from);
  if (!in.ends_with(".json")) {
    conversion.File(in, out);
    return conversion.report();
  }
  const ShardIndex files = ReadIndex(in);
  OutputFolder folder(out);
  for (const auto& [name, tensors] : files.tensors) {
    conversion.Shard((fs::path(in).parent_path() / name).string(),
                     folder.File(name), tensors);
  }
  conversion.RequireWhole(in);
  WriteOutput(folder.File(fs::path(in).filename().string()), files.text);
  folder.Finish();
  return conversion.report();
}

}  // namespace locus::models

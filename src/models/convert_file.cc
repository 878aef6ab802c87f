// Checkpoints rewritten for the other pair layout: one file, or all that an
// index names.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "core/fail.h"
#include "locus/checkpoint.h"
#include "models/byte_reader.h"
#include "models/gguf.h"
#include "models/mapped_file.h"
#include "models/rotated_rows.h"
#include "models/shards.h"

namespace locus::models {
namespace {

namespace fs = std::filesystem;

// The name of something that is not yet whole.
std::string Beside(const std::string& path) {
  return fmt::format("{}.{}.part", path, getpid());
}

// A file written beside its place, and put there when it is whole.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path)
      : path_(std::move(path)), beside_(Beside(path_)) {
    file_ =
        open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file_ < 0) Broken("create");
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (file_ >= 0) close(file_);
    if (!done_) unlink(beside_.c_str());
  }

  void Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) Broken("write");
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void Finish() {
    if (fsync(file_) != 0) Broken("write");
    const int file = file_;
    file_ = -1;
    if (close(file) != 0) Broken("write");
    if (rename(beside_.c_str(), path_.c_str()) != 0) Broken("rename");
    done_ = true;
  }

 private:
  [[noreturn]] void Broken(const char* what) const {
    Fail("cannot {} '{}': {}", what, beside_, std::strerror(errno));
  }

  std::string path_, beside_;
  int file_ = -1;
  bool done_ = false;
};

// The same for a folder.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::string path)
      : path_(std::move(path)), beside_(Beside(path_)) {
    if (fs::exists(path_)) {
      Fail("'{}' exists; files of an index go into a new folder", path_);
    }
    std::error_code error;
    if (!fs::create_directory(beside_, error)) {
      Fail("cannot create the folder '{}': {}", beside_, error.message());
    }
  }
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder() {
    std::error_code ignored;
    if (!done_) fs::remove_all(beside_, ignored);
  }

  std::string File(const std::string& name) const {
    return (fs::path(beside_) / name).string();
  }
  void Finish() {
    std::error_code error;
    fs::rename(beside_, path_, error);
    if (error) Fail("cannot rename '{}': {}", beside_, error.message());
    done_ = true;
  }

 private:
  std::string path_, beside_;
  bool done_ = false;
};

class Conversion {
 public:
  Conversion(std::string_view config, PairLayout to,
             std::optional<PairLayout> from)
      : config_(config), to_(to) {
    options_.layout = from;
    const LayerPosition first = FromConfig(config_, options_);
    layers_.resize(static_cast<size_t>(first.layers));
  }

  // Copies a file of an index but for the rows of rotated heads. `names` must
  // be among its tensors.
  void Shard(const std::string& in, const std::string& out,
             const std::vector<std::string>& names) {
    const Source source(in);
    for (const std::string& name : names) {
      if (source.file.Find(name) == nullptr) {
        Fail("the index puts tensor '{}' into '{}', which does not have it",
             Printable(name), in);
      }
    }
    Copy(source, PlanFor(source.file), out);
  }

  // The same of a file of its own, which must have something to convert.
  void File(const std::string& in, const std::string& out) {
    const Source source(in);
    const auto plan = PlanFor(source.file);
    RequireWhole(in);
    Copy(source, plan, out);
  }

  // Throws Error if there was nothing to convert, or of a layer only q or only
  // k: the one without the other would be wrong.
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
  struct Source {
    explicit Source(const std::string& path)
        : mapped(MapFile(path)), file(Read(path, mapped)) {}
    static Checkpoint Read(const std::string& path, const MappedFile& mapped) {
      if (IsGguf(mapped.bytes)) {
        Fail("'{}' is a GGUF file; only safetensors files are rewritten", path);
      }
      return Checkpoint::FromSafetensors(mapped.bytes, mapped.owner, path);
    }
    MappedFile mapped;
    Checkpoint file;
  };
  // Which projections of a layer were there.
  struct Sides {
    bool query = false;
    bool key = false;
  };
  struct Change {
    const TensorEntry* entry;
    std::vector<int64_t> order;  // the row that each row takes
  };

  // What changes, in the order of the file.
  std::vector<Change> PlanFor(const Checkpoint& file) {
    std::vector<Change> plan;
    for (const TensorEntry& entry : file.tensors()) {
      const auto role = RoleOf(entry.name);
      if (!role) continue;
      const LayerPosition& layer = Layer(entry.name, role->layer);
      if (!layer.rotary || layer.rotary->layout == to_) continue;
      plan.push_back(
          {&entry, Order(RowsOf(entry, *role, layer), layer.rotary->layout)});
      ++report_.tensors;
      Sides& sides = changed_[role->layer];
      const bool fused = role->holds == Holds::kFused;
      sides.query |= fused || role->holds == Holds::kQuery;
      sides.key |= fused || role->holds == Holds::kKey ||
                   role->holds == Holds::kLatentKey;
    }
    report_.layers = static_cast<int64_t>(changed_.size());
    std::ranges::sort(plan, {},
                      [](const Change& change) { return change.entry->data; });
    return plan;
  }

  void Copy(const Source& source, const std::vector<Change>& plan,
            const std::string& out) {
    AtomicFile result(out);
    const std::byte* at = source.mapped.bytes.data();
    const std::byte* end = at + source.mapped.bytes.size();
    for (const auto& [entry, order] : plan) {
      result.Write({at, entry->data});
      const size_t row = entry->bytes / order.size();
      std::vector<std::byte> rows;
      rows.reserve(entry->bytes);
      for (int64_t from : order) {
        const std::byte* first = entry->data + static_cast<size_t>(from) * row;
        rows.insert(rows.end(), first, first + row);
      }
      result.Write(rows);
      at = entry->data + entry->bytes;
    }
    result.Write({at, end});
    result.Finish();
    ++report_.files;
  }

  const LayerPosition& Layer(const std::string& tensor, int64_t layer) {
    if (layer >= static_cast<int64_t>(layers_.size())) {
      Fail("tensor '{}' is of layer {}, and the config has {} layers",
           Printable(tensor), layer, layers_.size());
    }
    auto& known = layers_[static_cast<size_t>(layer)];
    if (!known) {
      options_.layer = layer;
      known = FromConfig(config_, options_);
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

  std::string config_;
  PairLayout to_;
  ReadOptions options_;
  std::vector<std::optional<LayerPosition>> layers_;  // as far as looked at
  std::map<int64_t, Sides> changed_;                  // layers
  ConvertReport report_;
};

}  // namespace

ConvertReport ConvertLayoutFile(const std::string& in, const std::string& out,
                                std::string_view config_json, PairLayout to,
                                std::optional<PairLayout> from) {
  Conversion conversion(config_json, to, from);
  if (!in.ends_with(".json")) {
    conversion.File(in, out);
    return conversion.report();
  }
  const auto files = ReadIndex(in);
  AtomicFolder folder(out);
  for (const auto& [name, tensors] : files) {
    conversion.Shard((fs::path(in).parent_path() / name).string(),
                     folder.File(name), tensors);
  }
  conversion.RequireWhole(in);
  AtomicFile index(folder.File(fs::path(in).filename().string()));
  index.Write(MapFile(in).bytes);
  index.Finish();
  folder.Finish();
  return conversion.report();
}

}  // namespace locus::models

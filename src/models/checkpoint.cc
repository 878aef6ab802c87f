#include "locus/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "core/fail.h"
#include "models/byte_reader.h"
#include "models/gguf.h"
#include "models/mapped_file.h"
#include "models/shards.h"

namespace locus::models {
Checkpoint Checkpoint::Open(const std::string& path) {
  if (path.ends_with(".json")) {
    Checkpoint all;
    all.name_ = path;
    const auto folder = std::filesystem::path(path).parent_path();
    for (const auto& [shard, names] : ReadIndex(path).tensors) {
      Checkpoint one = Open((folder / shard).string());
      for (TensorEntry& entry : one.tensors_) {
        all.tensors_.push_back(std::move(entry));
      }
      for (auto& owner : one.owners_) all.owners_.push_back(std::move(owner));
    }
    all.Index();
    return all;
  }
  const MappedFile file = MapFile(path);
  return IsGguf(file.bytes) ? FromGguf(file.bytes, file.owner, path)
                            : FromSafetensors(file.bytes, file.owner, path);
}

void Checkpoint::Index() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [&](size_t i) -> const std::string& {
    return tensors_[i].name;
  });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (tensors_[by_name_[i - 1]].name == tensors_[by_name_[i]].name) {
      Fail("'{}' has the tensor '{}' twice", name_,
           Printable(tensors_[by_name_[i]].name));
    }
  }
}

const TensorEntry* Checkpoint::Find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      by_name_, name, {},
      [&](size_t i) -> std::string_view { return tensors_[i].name; });
  if (at == by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

Tensor Checkpoint::View(const TensorEntry& entry) const {
  DType dtype = DType::kF32;
  if (entry.type == "F64") {
    dtype = DType::kF64;
  } else if (entry.type == "BF16") {
    dtype = DType::kBF16;
  } else if (entry.type == "F16") {
    dtype = DType::kF16;
  } else if (entry.type != "F32") {
    Fail("tensor '{}' is of type {}; F32, F64, BF16 and F16 can be read",
         Printable(entry.name), entry.type);
  }
  if (entry.bytes == 0) {
    Fail("tensor '{}' is empty", Printable(entry.name));
  }
  const auto size = static_cast<size_t>(DTypeBytes(dtype));
  if (reinterpret_cast<uintptr_t>(entry.data) % size == 0) {
    return Tensor::Borrow(dtype, entry.shape, {}, entry.data,
                          std::make_shared<decltype(owners_)>(owners_));
  }
  // A header of odd length leaves the data unaligned: such a tensor is copied.
  auto copy = std::make_shared<std::vector<double>>(
      (entry.bytes + sizeof(double) - 1) / sizeof(double));
  std::memcpy(copy->data(), entry.data, entry.bytes);
  return Tensor::Borrow(dtype, entry.shape, {}, copy->data(), copy);
}

Tensor Checkpoint::Get(const std::string& name) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) {
    Fail("'{}' has no tensor '{}'", name_, Printable(name));
  }
  return View(*entry);
}

Tensor Checkpoint::Get(const NeededTensor& need) const {
  const TensorEntry* entry = Find(need.name);
  // Saved from the model without its head: fewer leading components.
  for (size_t dot = need.name.find('.');
       entry == nullptr && dot != std::string::npos;
       dot = need.name.find('.', dot + 1)) {
    entry = Find(std::string_view(need.name).substr(dot + 1));
  }
  // Saved as part of a larger model: more leading components, if unambiguous.
  if (entry == nullptr) {
    for (const TensorEntry& other : tensors_) {
      if (!other.name.ends_with("." + need.name)) continue;
      if (entry != nullptr) {
        Fail("'{}' has both '{}' and '{}' for '{}'", name_,
             Printable(entry->name), Printable(other.name), need.name);
      }
      entry = &other;
    }
  }
  if (entry == nullptr) {
    Fail("'{}' has no tensor '{}' [{}] ({})", name_, need.name,
         fmt::join(need.shape, ", "), need.use);
  }
  if (entry->shape != need.shape) {
    Fail("tensor '{}' must be [{}] by the config, and is [{}]",
         Printable(entry->name), fmt::join(need.shape, ", "),
         fmt::join(entry->shape, ", "));
  }
  return View(*entry);
}

TensorLookup Checkpoint::Lookup() const {
  return [this](const NeededTensor& need) { return Get(need); };
}

}  // namespace locus::models

// Weights for one pair layout, rewritten for the other.
//
//   interleaved channel first + 2p      <->  halves channel first + p
//   interleaved channel first + 2p + 1  <->  halves channel first + p + r / 2
//
// in every head, for p = 0 .. r/2 - 1. q and k change alike, so q.k stays, and
// the other layout's rotation acts on the same pairs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/fail.h"
#include "locus/checkpoint.h"
#include "models/byte_reader.h"
#include "models/mapped_file.h"

namespace locus::models {
namespace {

// A file written beside its place, and put there when it is whole.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path)
      : path_(std::move(path)),
        beside_(fmt::format("{}.{}.part", path_, getpid())) {
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

  void Write(const std::byte* data, size_t size) {
    while (size > 0) {
      const ssize_t written = write(file_, data, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) Broken("write");
      data += written;
      size -= static_cast<size_t>(written);
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

// Which projection a tensor belongs to, and the layer.
struct Role {
  bool query = false;
  bool norm = false;
  int64_t layer = -1;
};

// The number after "layers." or "h.", "blocks." and the like: the first
// component that is a number.
int64_t LayerOf(std::string_view name) {
  while (!name.empty()) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    if (!part.empty() && part.size() < 6 &&
        part.find_first_not_of("0123456789") == std::string_view::npos) {
      return std::stoll(std::string(part));
    }
    if (dot == std::string_view::npos) break;
    name.remove_prefix(dot + 1);
  }
  return -1;
}

std::optional<Role> RoleOf(std::string_view name) {
  constexpr std::string_view kRoles[][2] = {
      {".q_proj.weight", ".k_proj.weight"},
      {".q_proj.bias", ".k_proj.bias"},
      {".q_norm.weight", ".k_norm.weight"},
      {".q_layernorm.weight", ".k_layernorm.weight"}};
  for (const auto& names : kRoles) {
    for (int side : {0, 1}) {
      if (name.ends_with(names[side])) {
        return Role{.query = side == 0,
                    .norm = names[side].find("norm") != std::string_view::npos,
                    .layer = LayerOf(name)};
      }
    }
  }
  return std::nullopt;
}

// Weights that hold q or k together with something else: their rows are not
// those of heads, and converting only the rest would be silently wrong.
void RefuseFused(const Checkpoint& file) {
  constexpr std::string_view kFused[] = {
      ".qkv_proj.", ".query_key_value.",    ".c_attn.", ".W_pack.",
      ".Wqkv.",     ".kv_a_proj_with_mqa.", ".qkv."};
  for (const TensorEntry& entry : file.tensors()) {
    for (std::string_view fused : kFused) {
      if (entry.name.find(fused) != std::string::npos) {
        Fail(
            "tensor '{}' holds q or k together with others; only separate "
            "q_proj and k_proj can be converted",
            Printable(entry.name));
      }
    }
  }
}

// Rows of a tensor in their new order, to the file.
void WriteRows(AtomicFile& file, const TensorEntry& entry,
               const std::vector<int64_t>& order) {
  const size_t row = entry.bytes / order.size();
  for (int64_t from : order) {
    file.Write(entry.data + static_cast<size_t>(from) * row, row);
  }
}

}  // namespace

std::vector<int64_t> LayoutPermutation(const HeadRows& rows, PairLayout from,
                                       PairLayout to) {
  const int64_t r = rows.rotary_dim;
  if (rows.heads < 1 || rows.head_dim < 1 || r < 2 || r % 2 != 0 ||
      rows.first_channel < 0 || rows.first_channel + r > rows.head_dim) {
    Fail("{} heads of {} channels cannot rotate {} from channel {}", rows.heads,
         rows.head_dim, r, rows.first_channel);
  }
  const auto channel = [&](PairLayout layout, int64_t p, int64_t second) {
    return rows.first_channel + (layout == PairLayout::kInterleaved
                                     ? 2 * p + second
                                     : p + second * (r / 2));
  };
  std::vector<int64_t> order(static_cast<size_t>(rows.heads * rows.head_dim));
  for (int64_t h = 0; h < rows.heads; ++h) {
    const int64_t head = h * rows.head_dim;
    for (int64_t c = 0; c < rows.head_dim; ++c) {
      order[static_cast<size_t>(head + c)] = head + c;
    }
    for (int64_t p = 0; p < r / 2; ++p) {
      for (int64_t second : {0, 1}) {
        order[static_cast<size_t>(head + channel(to, p, second))] =
            head + channel(from, p, second);
      }
    }
  }
  return order;
}

Tensor ConvertLayout(const Tensor& weight, const HeadRows& rows,
                     PairLayout from, PairLayout to) {
  const auto order = LayoutPermutation(rows, from, to);
  if ((weight.rank() != 1 && weight.rank() != 2) ||
      weight.size(0) != static_cast<int64_t>(order.size())) {
    Fail("a projection of {} heads of {} needs {} rows, got {}", rows.heads,
         rows.head_dim, order.size(), weight.Describe());
  }
  const Tensor source = weight.To(weight.dtype());
  Tensor result = Tensor::Empty(weight.dtype(), weight.shape());
  const size_t row =
      static_cast<size_t>(weight.NumElements() * DTypeBytes(weight.dtype())) /
      order.size();
  const auto bytes = [](const Tensor& t) -> const std::byte* {
    switch (t.dtype()) {
      case DType::kF32:
        return reinterpret_cast<const std::byte*>(t.Data<float>());
      case DType::kF64:
        return reinterpret_cast<const std::byte*>(t.Data<double>());
      default:
        return reinterpret_cast<const std::byte*>(t.Data<uint16_t>());
    }
  };
  const std::byte* in = bytes(source);
  auto* out = const_cast<std::byte*>(bytes(result));
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(out + i * row, in + static_cast<size_t>(order[i]) * row, row);
  }
  return result;
}

ConvertReport ConvertLayoutFile(const std::string& in, const std::string& out,
                                std::string_view config_json, PairLayout to,
                                std::optional<PairLayout> from) {
  const MappedFile mapped = MapFile(in);
  const Checkpoint file =
      Checkpoint::FromSafetensors(mapped.bytes, mapped.owner, in);
  RefuseFused(file);
  ReadOptions options;
  options.layout = from;
  const int64_t layers = FromConfig(config_json, options).layers;
  ConvertReport report;
  std::vector<const TensorEntry*> in_place;
  for (const TensorEntry& entry : file.tensors()) in_place.push_back(&entry);
  std::ranges::sort(in_place, {}, &TensorEntry::data);
  std::vector<bool> changed(static_cast<size_t>(layers), false);
  AtomicFile result(out);
  const std::byte* at = mapped.bytes.data();
  for (const TensorEntry* entry : in_place) {
    const auto role = RoleOf(entry->name);
    if (!role || role->layer < 0 || role->layer >= layers) continue;
    options.layer = role->layer;
    const LayerPosition p = FromConfig(config_json, options);
    if (!p.rotary || p.rotary->layout == to) continue;
    HeadRows rows = {.heads = role->query ? p.q_heads : p.kv_heads,
                     .head_dim = p.head_dim,
                     .rotary_dim = p.rotary->rotary_dim,
                     .first_channel = p.rotary->first_channel};
    int64_t count = entry->shape.empty() ? 0 : entry->shape[0];
    if (role->norm && entry->shape.size() == 2) count *= entry->shape[1];
    // A norm of one head serves them all.
    if (role->norm && count == rows.head_dim) rows.heads = 1;
    if (count != rows.heads * rows.head_dim || entry->bytes == 0) {
      Fail("tensor '{}' has {} rows; the config says {} heads of {}",
           Printable(entry->name), count, rows.heads, rows.head_dim);
    }
    result.Write(at, static_cast<size_t>(entry->data - at));
    WriteRows(result, *entry, LayoutPermutation(rows, p.rotary->layout, to));
    at = entry->data + entry->bytes;
    ++report.tensors;
    changed[static_cast<size_t>(role->layer)] = true;
  }
  for (bool c : changed) report.layers += c ? 1 : 0;
  if (report.tensors == 0) {
    Fail("'{}' has no q_proj and k_proj weights in the other layout to convert",
         in);
  }
  const std::byte* end = mapped.bytes.data() + mapped.bytes.size();
  result.Write(at, static_cast<size_t>(end - at));
  result.Finish();
  return report;
}

}  // namespace locus::models

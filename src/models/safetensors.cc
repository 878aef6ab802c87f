// safetensors: 8 bytes of header length, a JSON header, then the data.
//
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// Offsets count from the end of the header. Tensors cover the data without
// holes or overlaps.
#include "models/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/fail.h"
#include "models/byte_reader.h"
#include "models/json.h"

namespace locus::models {
namespace {

// Far more than real headers: 100 bytes per tensor, some hundred thousand
// tensors.
constexpr size_t kMostHeader = size_t{32} << 20;
constexpr size_t kMostAxes = 16;

struct Type {
  const char* name;
  uint64_t bits;
};
constexpr std::array kTypes = {
    Type{"F32", 32},       Type{"F16", 16},    Type{"BF16", 16},
    Type{"F64", 64},       Type{"I64", 64},    Type{"I32", 32},
    Type{"I16", 16},       Type{"I8", 8},      Type{"U8", 8},
    Type{"U16", 16},       Type{"U32", 32},    Type{"U64", 64},
    Type{"BOOL", 8},       Type{"F8_E4M3", 8}, Type{"F8_E5M2", 8},
    Type{"F8_E8M0", 8},    Type{"C64", 64},    Type{"F4", 4},
    Type{"F6_E2M3", 6},    Type{"F6_E3M2", 6}, Type{"F8_E4M3FNUZ", 8},
    Type{"F8_E5M2FNUZ", 8}};

std::optional<uint64_t> Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

uint64_t Unsigned(const std::string& what, const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    Fail("{} must be a whole number from 0 to 2^63 - 1, got {}", what,
         Shown(value));
  }
  return value.get<uint64_t>();
}

const Json& Field(const std::string& tensor, const Json& entry,
                  const char* key) {
  const auto at = entry.find(key);
  if (at == entry.end()) Fail("tensor '{}' has no {}", tensor, key);
  return *at;
}

PlacedTensor ReadEntry(const std::string& key, const Json& json,
                       uint64_t data_size) {
  const std::string shown = Printable(key);
  if (!json.is_object()) {
    Fail("tensor '{}' must be an object, got {}", shown, Shown(json));
  }
  PlacedTensor placed;
  placed.entry.name = key;
  const Json& dtype = Field(shown, json, "dtype");
  const Type* type = nullptr;
  for (const Type& known : kTypes) {
    if (dtype.is_string() &&
        dtype.get_ref<const std::string&>() == known.name) {
      type = &known;
    }
  }
  if (type == nullptr) {
    Fail("tensor '{}' has the unknown dtype {}", shown, Shown(dtype));
  }
  placed.entry.type = type->name;
  const Json& shape = Field(shown, json, "shape");
  if (!shape.is_array() || shape.size() > kMostAxes) {
    Fail("tensor '{}' has the shape {}; it must be a list of at most {}", shown,
         Shown(shape), kMostAxes);
  }
  std::optional<uint64_t> bits = type->bits;
  for (const Json& size : shape) {
    const uint64_t n = Unsigned("a size of tensor '" + shown + "'", size);
    placed.entry.shape.push_back(static_cast<int64_t>(n));
    if (bits) bits = Times(*bits, n);
  }
  const Json& offsets = Field(shown, json, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    Fail("tensor '{}' has data_offsets {}; they must be two numbers", shown,
         Shown(offsets));
  }
  placed.begin = Unsigned("an offset of tensor '" + shown + "'", offsets[0]);
  placed.end = Unsigned("an offset of tensor '" + shown + "'", offsets[1]);
  if (placed.begin > placed.end || placed.end > data_size) {
    Fail("tensor '{}' lies at {} .. {} of {} bytes of data", shown,
         placed.begin, placed.end, data_size);
  }
  placed.entry.bytes = placed.end - placed.begin;
  if (!bits || *bits % 8 != 0 || *bits / 8 != placed.entry.bytes) {
    Fail("tensor '{}' has {} bytes, which is not its shape of {}", shown,
         placed.entry.bytes, placed.entry.type);
  }
  return placed;
}

}  // namespace

void CheckHeaderSize(uint64_t header_size, uint64_t left,
                     const std::string& name) {
  if (header_size > kMostHeader || header_size > left) {
    Fail(
        "'{}' announces a header of {} bytes, of {} in the file and at most "
        "{}",
        name, header_size, left, kMostHeader);
  }
}

std::vector<PlacedTensor> ReadSafetensorsHeader(std::string_view header,
                                                uint64_t data_size,
                                                const std::string& name) {
  const JsonTree tree =
      ParseObject(header, "the safetensors header", kMostHeader);
  const Json& json = tree.root;
  std::vector<PlacedTensor> tensors;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") continue;
    tensors.push_back(ReadEntry(key, value, data_size));
  }
  std::ranges::stable_sort(tensors, [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  for (const PlacedTensor& tensor : tensors) {
    if (tensor.begin != at) {
      Fail("tensor '{}' begins at byte {}, but the one before it ends at {}",
           Printable(tensor.entry.name), tensor.begin, at);
    }
    at = tensor.end;
  }
  if (at != data_size) {
    Fail("the tensors of '{}' end at byte {}, the data at {}", name, at,
         data_size);
  }
  return tensors;
}

Checkpoint Checkpoint::FromSafetensors(std::span<const std::byte> bytes,
                                       std::shared_ptr<const void> owner,
                                       const std::string& name) {
  ByteReader reader(bytes, name);
  const auto header_size = reader.Number<uint64_t>();
  CheckHeaderSize(header_size, reader.left(), name);
  const std::string_view header(
      reinterpret_cast<const char*>(bytes.data()) + reader.at(),
      static_cast<size_t>(header_size));
  reader.Skip(header_size, 1);
  const std::byte* data = bytes.data() + reader.at();
  Checkpoint checkpoint;
  checkpoint.name_ = name;
  checkpoint.owners_.push_back(std::move(owner));
  for (auto& tensor : ReadSafetensorsHeader(header, reader.left(), name)) {
    tensor.entry.data = data + tensor.begin;
    checkpoint.tensors_.push_back(std::move(tensor.entry));
  }
  checkpoint.Index();
  return checkpoint;
}

}  // namespace locus::models

// GGUF, versions 2 and 3, little-endian:
//
//   "GGUF" version:u32 tensors:u64 entries:u64
//   entries x (key:text type:u32 value)       text = length:u64 bytes
//   tensors x (name:text axes:u32 sizes:u64[] type:u32 offset:u64)
//   padding to general.alignment, then data; sizes innermost first
#include "models/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "models/byte_reader.h"

namespace locus::models {
namespace {

constexpr uint32_t kMostAxes = 4;
constexpr size_t kMostName = 256;
// Longer lists are vocabularies; per-layer lists have one entry per layer.
constexpr uint64_t kMostKept = 4096;
constexpr int kDeepest = 4;
// Real files have fewer than a hundred; every layer searches them.
constexpr uint64_t kMostKeys = 4096;

enum : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kList,
  kU64,
  kI64,
  kF64
};

// Bytes of a number of a type; 0 for strings, lists and unknown types.
uint64_t SizeOf(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

GgufValue ReadNumber(ByteReader& in, uint32_t type) {
  switch (type) {
    case kU8:
      return int64_t{in.Number<uint8_t>()};
    case kI8:
      return int64_t{in.Number<int8_t>()};
    case kU16:
      return int64_t{in.Number<uint16_t>()};
    case kI16:
      return int64_t{in.Number<int16_t>()};
    case kU32:
      return int64_t{in.Number<uint32_t>()};
    case kI32:
      return int64_t{in.Number<int32_t>()};
    case kI64:
      return in.Number<int64_t>();
    case kU64: {
      const auto value = in.Number<uint64_t>();
      if (value > INT64_MAX) return static_cast<double>(value);
      return static_cast<int64_t>(value);
    }
    case kF32:
      return double{in.Number<float>()};
    case kF64:
      return in.Number<double>();
    default:
      return in.Number<uint8_t>() != 0;
  }
}

double AsDouble(const GgufValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*i);
  }
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
  return std::get<double>(value);
}

GgufValue ReadValue(ByteReader& in, uint32_t type, const std::string& key,
                    int depth = 0) {
  if (SizeOf(type) != 0) return ReadNumber(in, type);
  if (type == kText) return std::string(in.Text());
  if (type != kList || depth >= kDeepest) {
    Fail("the key '{}' has a value of unknown type {}", Printable(key), type);
  }
  const auto item = in.Number<uint32_t>();
  const auto count = in.Number<uint64_t>();
  const uint64_t size = SizeOf(item);
  if (size != 0 && count > kMostKept) {
    in.Skip(count, size);
    return {};
  }
  std::vector<double> numbers;
  for (uint64_t i = 0; i < count; ++i) {
    if (size != 0) {
      numbers.push_back(AsDouble(ReadNumber(in, item)));
    } else if (item == kText) {
      in.Text();
    } else {
      ReadValue(in, item, key, depth + 1);
    }
  }
  if (size == 0) return {};
  return numbers;
}

// Values per block, and bytes of a block. Unknown types are newer than this
// list; their tensors are listed without a size.
struct Blocks {
  const char* name;
  uint64_t values, bytes;
};
const Blocks* BlocksOf(uint32_t type) {
  static const std::map<uint32_t, Blocks> kTypes = {
      {0, {"F32", 1, 4}},         {1, {"F16", 1, 2}},
      {2, {"Q4_0", 32, 18}},      {3, {"Q4_1", 32, 20}},
      {6, {"Q5_0", 32, 22}},      {7, {"Q5_1", 32, 24}},
      {8, {"Q8_0", 32, 34}},      {9, {"Q8_1", 32, 36}},
      {10, {"Q2_K", 256, 84}},    {11, {"Q3_K", 256, 110}},
      {12, {"Q4_K", 256, 144}},   {13, {"Q5_K", 256, 176}},
      {14, {"Q6_K", 256, 210}},   {15, {"Q8_K", 256, 292}},
      {16, {"IQ2_XXS", 256, 66}}, {17, {"IQ2_XS", 256, 74}},
      {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}},
      {20, {"IQ4_NL", 32, 18}},   {21, {"IQ3_S", 256, 110}},
      {22, {"IQ2_S", 256, 82}},   {23, {"IQ4_XS", 256, 136}},
      {24, {"I8", 1, 1}},         {25, {"I16", 1, 2}},
      {26, {"I32", 1, 4}},        {27, {"I64", 1, 8}},
      {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}},
      {30, {"BF16", 1, 2}},       {34, {"TQ1_0", 256, 54}},
      {35, {"TQ2_0", 256, 66}},   {39, {"MXFP4", 32, 17}},
      {40, {"NVFP4", 64, 36}},    {41, {"Q1_0", 128, 18}}};
  const auto at = kTypes.find(type);
  return at == kTypes.end() ? nullptr : &at->second;
}

struct Placed {
  TensorEntry entry;
  uint64_t offset = 0;
  bool sized = false;
};

Placed ReadTensor(ByteReader& in) {
  Placed placed;
  const std::string_view name = in.Text();
  if (name.empty() || name.size() > kMostName) {
    Fail("a tensor has a name of {} bytes; 1 .. {} can be right", name.size(),
         kMostName);
  }
  placed.entry.name = name;
  const auto axes = in.Number<uint32_t>();
  if (axes > kMostAxes) {
    Fail("tensor '{}' has {} axes, more than {}", Printable(name), axes,
         kMostAxes);
  }
  uint64_t count = 1, inner = 1;
  bool fits = true;
  for (uint32_t a = 0; a < axes; ++a) {
    const auto size = in.Number<uint64_t>();
    if (size > INT64_MAX) {
      Fail("tensor '{}' has an axis of {}", Printable(name), size);
    }
    if (a == 0) inner = size;
    fits = fits && !__builtin_mul_overflow(count, size, &count);
    placed.entry.shape.insert(placed.entry.shape.begin(),
                              static_cast<int64_t>(size));
  }
  const auto type = in.Number<uint32_t>();
  placed.offset = in.Number<uint64_t>();
  const Blocks* blocks = BlocksOf(type);
  placed.entry.type =
      blocks == nullptr ? fmt::format("type {}", type) : blocks->name;
  if (blocks == nullptr) return placed;
  if (!fits || inner % blocks->values != 0 ||
      __builtin_mul_overflow(count / blocks->values, blocks->bytes,
                             &placed.entry.bytes)) {
    Fail("tensor '{}' cannot have the shape [{}] in type {}", Printable(name),
         fmt::join(placed.entry.shape, ", "), placed.entry.type);
  }
  placed.sized = true;
  return placed;
}

// Checks that tensors are aligned, inside the data and disjoint, and places
// them.
void Place(std::vector<Placed>& tensors, std::span<const std::byte> data,
           uint64_t alignment) {
  std::vector<const Placed*> in_order;
  for (Placed& t : tensors) {
    if (t.offset % alignment != 0) {
      Fail("tensor '{}' is at byte {}, which is no multiple of {}",
           Printable(t.entry.name), t.offset, alignment);
    }
    if (t.offset > data.size() || t.entry.bytes > data.size() - t.offset) {
      Fail("tensor '{}' lies at {} + {} bytes of {} bytes of data",
           Printable(t.entry.name), t.offset, t.entry.bytes, data.size());
    }
    t.entry.data = data.data() + t.offset;
    if (t.sized && t.entry.bytes != 0) in_order.push_back(&t);
  }
  std::ranges::sort(in_order, {}, &Placed::offset);
  for (size_t i = 1; i < in_order.size(); ++i) {
    const Placed &a = *in_order[i - 1], &b = *in_order[i];
    if (b.offset - a.offset < a.entry.bytes) {
      Fail("tensors '{}' and '{}' overlap", Printable(a.entry.name),
           Printable(b.entry.name));
    }
  }
}

}  // namespace

bool IsGguf(std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "GGUF";
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Gguf ReadGguf(std::span<const std::byte> bytes, const std::string& name) {
  ByteReader in(bytes, name);
  if (!IsGguf(bytes)) Fail("'{}' is not GGUF", name);
  in.Skip(1, 4);
  const auto version = in.Number<uint32_t>();
  if (version != 2 && version != 3) {
    Fail("'{}' is GGUF of version {}; versions 2 and 3 are read, little-endian",
         name, version);
  }
  const auto tensor_count = in.Number<uint64_t>();
  const auto entries = in.Number<uint64_t>();
  if (entries > kMostKeys) {
    Fail("'{}' has {} keys, more than the {} that can be right", name, entries,
         kMostKeys);
  }
  Gguf gguf;
  // An entry takes at least 13 bytes and a tensor 24, so counts that are too
  // large fail when reading past the end.
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string key(in.Text());
    const auto type = in.Number<uint32_t>();
    if (!gguf.metadata.emplace(key, ReadValue(in, type, key)).second) {
      Fail("'{}' has the key '{}' twice", name, Printable(key));
    }
  }
  uint64_t alignment = 32;
  if (const auto at = gguf.metadata.find("general.alignment");
      at != gguf.metadata.end()) {
    const auto* value = std::get_if<int64_t>(&at->second);
    // A power of two; 64 KiB is the largest page in use.
    if (value == nullptr || *value < 1 || *value > 65536 ||
        (*value & (*value - 1)) != 0) {
      Fail("general.alignment of '{}' is no power of two up to 65536", name);
    }
    alignment = static_cast<uint64_t>(*value);
  }
  std::vector<Placed> tensors;
  for (uint64_t i = 0; i < tensor_count; ++i) tensors.push_back(ReadTensor(in));
  const uint64_t padding = (alignment - in.at() % alignment) % alignment;
  if (tensors.empty()) return gguf;
  in.Skip(padding, 1);
  Place(tensors, bytes.subspan(in.at()), alignment);
  for (Placed& t : tensors) gguf.tensors.push_back(std::move(t.entry));
  return gguf;
}

Checkpoint Checkpoint::FromGguf(std::span<const std::byte> bytes,
                                std::shared_ptr<const void> owner,
                                const std::string& name) {
  Checkpoint checkpoint;
  checkpoint.name_ = name;
  checkpoint.tensors_ = ReadGguf(bytes, name).tensors;
  checkpoint.owners_.push_back(std::move(owner));
  checkpoint.Index();
  return checkpoint;
}

}  // namespace locus::models

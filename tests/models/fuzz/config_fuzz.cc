// libFuzzer: configs. The first byte selects layer, part and strictness.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "budget.h"
#include "locus/error.h"
#include "locus/models.h"

namespace {

void Read(const uint8_t* data, size_t size) {
  if (size == 0) return;
  constexpr std::array<const char*, 4> kParts = {"", "encoder", "decoder",
                                                 "vision_config"};
  locus::models::ReadOptions options;
  options.layer = data[0] & 3;
  options.part = kParts[(data[0] >> 2) & 3];
  options.lenient = (data[0] & 16) != 0;
  options.angles = (data[0] & 32) != 0 ? locus::AngleMode::kFloat32
                                       : locus::AngleMode::kExact;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  try {
    const auto p = locus::models::FromConfig(text, options);
    // A config that is accepted can also be lowered, if it needs no tensors.
    if (p.attention.encoding != nullptr && p.head_dim <= 1024 &&
        p.q_heads <= 64) {
      auto shape =
          locus::Shape::SelfAttention(p.q_heads, p.head_dim, /*length=*/4);
      shape.kv_heads = p.kv_heads;
      shape.scale = p.scale;
      locus::Validate(p.attention.encoding->Lower(shape).terms, shape);
    }
  } catch (const locus::Error&) {
    return;  // one sentence is the right answer for most of these
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  locus::models::WithinBudget(size, [&] { Read(data, size); });
  return 0;
}

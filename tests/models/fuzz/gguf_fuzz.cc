// libFuzzer: GGUF files, read as weights and as configs.
#include <cstddef>
#include <cstdint>

#include "budget.h"
#include "locus/checkpoint.h"
#include "locus/error.h"

namespace {

void Read(const uint8_t* data, size_t size) {
  using locus::models::Checkpoint;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto file = Checkpoint::FromGguf(bytes, nullptr, "fuzz");
    for (const auto& entry : file.tensors()) {
      try {
        file.Get(entry.name).ToVector();
      } catch (const locus::Error&) {
        continue;  // of an unsupported type
      }
    }
  } catch (const locus::Error&) {
    return;
  }
  for (bool lenient : {false, true}) {
    try {
      locus::models::FromGguf(bytes, "fuzz", {.layer = 0, .lenient = lenient});
    } catch (const locus::Error&) {
      continue;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  locus::models::WithinBudget(size, [&] { Read(data, size); });
  return 0;
}

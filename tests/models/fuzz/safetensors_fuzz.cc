// libFuzzer: safetensors files. Every accepted tensor is read completely.
#include <cstddef>
#include <cstdint>

#include "budget.h"
#include "locus/checkpoint.h"
#include "locus/error.h"

namespace {

void Read(const uint8_t* data, size_t size) {
  using locus::models::Checkpoint;
  try {
    const auto file = Checkpoint::FromSafetensors(
        {reinterpret_cast<const std::byte*>(data), size}, nullptr, "fuzz");
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
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  locus::models::WithinBudget(size, [&] { Read(data, size); });
  return 0;
}

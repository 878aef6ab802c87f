// The readers of model files when memory runs out.
#include <unistd.h>

#include "faults/failing_new.h"
#include "locus/locus.h"
#include "models/files.h"

namespace locus::testing {
namespace {

using models::AsBytes;
using models::Checkpoint;
using models::FromConfig;
using models::FromGguf;
using models::LayerPosition;

// What was read, as numbers: equal facts, equal tensors.
std::vector<Tensor> Facts(const LayerPosition& p) {
  std::vector<double> facts = {static_cast<double>(p.q_heads),
                               static_cast<double>(p.kv_heads),
                               static_cast<double>(p.head_dim)};
  if (p.rotary) {
    facts.insert(facts.end(), p.rotary->theta.begin(), p.rotary->theta.end());
  }
  const auto count = static_cast<int64_t>(facts.size());
  return {Tensor::From({count}, std::move(facts))};
}

TEST(ReadersMemoryTest, Config) {
  const char* texts[] = {
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 2,
          "max_position_embeddings": 131072, "rope_theta": 500000.0,
          "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
          "rope_type": "llama3"}})",
      R"({"model_type": "bloom", "hidden_size": 64, "n_head": 4,
          "n_layer": 2})",
  };
  for (const char* text : texts) {
    ExpectSurvivesEveryAllocation([&] { return Facts(FromConfig(text)); });
    if (HasFailure()) return;
  }
}

// An invalid config is rejected, and not mistaken for another one.
TEST(ReadersMemoryTest, WrongConfig) {
  for (const char* text : {"{\"model_type\": \"llama\"", "[]",
                           "{\"model_type\": \"no such model\"}"}) {
    // It always throws one of the two.
    const auto attempt = [&] {
      const Outcome outcome = Try([&] { FromConfig(text); });
      return outcome == Outcome::kThrew ? Outcome::kReturned
                                        : Outcome::kThrewSomethingElse;
    };
    ForEveryAllocation(attempt, [](Outcome) {});
    if (HasFailure()) FAIL() << text;
  }
}

std::string GgufBytes() {
  models::GgufFile file;
  file.Str("general.architecture", "llama")
      .U32("llama.block_count", 2)
      .U32("llama.context_length", 4096)
      .U32("llama.embedding_length", 64)
      .U32("llama.attention.head_count", 4)
      .U32("llama.attention.head_count_kv", 2)
      .F32("llama.rope.freq_base", 500000.0F)
      .U32("llama.rope.dimension_count", 16);
  file.Floats("rope_freqs.weight", {8}, std::vector<float>(8, 1.5F));
  return file.Bytes();
}

TEST(ReadersMemoryTest, Gguf) {
  const std::string bytes = GgufBytes();
  ExpectSurvivesEveryAllocation(
      [&] { return Facts(FromGguf(AsBytes(bytes), "file", {})); });
  ExpectSurvivesEveryAllocation([&] {
    const auto file = Checkpoint::FromGguf(AsBytes(bytes), nullptr, "file");
    return std::vector<Tensor>{file.Get("rope_freqs.weight")};
  });
}

TEST(ReadersMemoryTest, Safetensors) {
  const std::string bytes = models::Safetensors(
      R"({"__metadata__": {"format": "pt"},
          "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
          "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]}})",
      std::string(24, '\1'));
  ExpectSurvivesEveryAllocation([&] {
    const auto file =
        Checkpoint::FromSafetensors(AsBytes(bytes), nullptr, "file");
    return std::vector<Tensor>{file.Get("a"), file.Get("b")};
  });
}

// From disk, memory-mapped.
TEST(ReadersMemoryTest, Files) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string path =
      (folder / ("locus-faults-" + std::to_string(getpid()) + ".gguf"))
          .string();
  std::ofstream(path, std::ios::binary) << GgufBytes();
  ExpectSurvivesEveryAllocation([&] { return Facts(FromGguf(path, {})); });
  ExpectSurvivesEveryAllocation([&] {
    return std::vector<Tensor>{Checkpoint::Open(path).Get("rope_freqs.weight")};
  });
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace locus::testing

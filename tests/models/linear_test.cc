// Readers of untrusted files take linear time.
//
// Each test reads some input, and four times as much. Linear work takes 4 times
// as long, quadratic work 16 times; more than 10 fails. Measures the CPU time
// of this thread, the minimum of several rounds, so other load hardly matters.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>

#include "locus/error.h"
#include "locus/files.h"
#include "models/files.h"

namespace locus::models {
namespace {

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

double Least(const std::function<void()>& work) {
  constexpr int kRounds = 3;
  double least = 1e9;
  for (int n = 0; n < kRounds; ++n) {
    const double begin = CpuSeconds();
    work();
    least = std::min(least, CpuSeconds() - begin);
  }
  return least;
}

// `prepare` returns the work for a size.
void ExpectLinear(
    int64_t size,
    const std::function<std::function<void()>(int64_t)>& prepare) {
  constexpr double kMostRatio = 10.0;
  const double once = Least(prepare(size));
  const double four = Least(prepare(4 * size));
  EXPECT_LT(four, kMostRatio * once) << "seconds for " << size << ": " << once;
}

constexpr const char* kLlama = R"("model_type": "llama", "hidden_size": 64,
    "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 128)";

// Labels of an image classifier, as for ImageNet-22k.
TEST(LinearTest, KeysOfAConfig) {
  ExpectLinear(8000, [](int64_t keys) {
    std::string text = fmt::format("{{{}, \"id2label\": {{", kLlama);
    for (int64_t n = 0; n < keys; ++n) {
      text += fmt::format("{}\"{}\": \"a label\"", n == 0 ? "" : ", ", n);
    }
    text += "}}";
    return [text] { FromConfig(text); };
  });
}

TEST(LinearTest, TensorsOfASafetensorsHeader) {
  ExpectLinear(8000, [](int64_t tensors) {
    std::string text = "{";
    for (int64_t n = 0; n < tensors; ++n) {
      text += fmt::format(
          R"({}"model.{}": {{"dtype": "F32", "shape": [1], "data_offsets": [{}, {}]}})",
          n == 0 ? "" : ", ", n, 4 * n, 4 * n + 4);
    }
    const std::string bytes = Safetensors(
        text + "}", std::string(static_cast<size_t>(4 * tensors), '\0'));
    return
        [bytes] { Checkpoint::FromSafetensors(AsBytes(bytes), nullptr, "f"); };
  });
}

// The only file that it names is absent, which is found out last.
TEST(LinearTest, NamesOfAnIndex) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("locus_linear_{}.json", getpid());
  ExpectLinear(8000, [&](int64_t names) {
    std::string text = R"({"weight_map": {)";
    for (int64_t n = 0; n < names; ++n) {
      text += fmt::format(R"({}"model.layers.{}.weight": "absent.safetensors")",
                          n == 0 ? "" : ", ", n);
    }
    WriteOutput(path.string(), text + "}}");
    return [&path] { EXPECT_THROW(Checkpoint::Open(path.string()), Error); };
  });
  std::filesystem::remove(path);
}

TEST(LinearTest, TensorsOfAGgufFile) {
  ExpectLinear(8000, [](int64_t tensors) {
    GgufFile file;
    file.Str("general.architecture", "llama");
    for (int64_t n = 0; n < tensors; ++n) {
      file.Floats(fmt::format("blk.{}", n), {1}, {0.0F});
    }
    return [bytes = file.Bytes()] {
      Checkpoint::FromGguf(AsBytes(bytes), nullptr, "f");
    };
  });
}

// The last layer costs as much as the first.
TEST(LinearTest, LayersOfAConfig) {
  ExpectLinear(500, [](int64_t layers) {
    const auto config = ModelConfig::Parse(fmt::format(
        R"({{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": {},
             "n_positions": 128, "scale_attn_by_inverse_layer_idx": true}})",
        layers));
    return [config, layers] {
      for (int64_t n = 0; n < layers; ++n) config.Layer({.layer = n});
    };
  });
}

// ------------------------------------------------------------- stated limits

std::string Refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(LimitsTest, BytesOfAConfig) {
  std::string text(kMostConfigBytes, ' ');
  text.replace(0, 1, "{");
  text += "}";
  EXPECT_EQ(Refusal([&] { FromConfig(text); }),
            "the config has 16777217 bytes, more than the 16777216 that can be "
            "right");
  // Endless, and not a regular file.
  EXPECT_EQ(Refusal([] { FromConfigFile("/dev/zero"); }),
            "'/dev/zero' has more than the 16777216 bytes that a config may "
            "have");
}

TEST(LimitsTest, KeysThatALayerLooksThrough) {
  const auto keys = [](const char* part) {
    std::string text;
    for (int n = 0; n < 5000; ++n)
      text += fmt::format(", \"{}{}\": 1", part, n);
    return text;
  };
  EXPECT_EQ(
      Refusal([&] { FromConfig(fmt::format("{{{}{}}}", kLlama, keys("x"))); }),
      "the config has 5005 keys, more than the 4096 that can be right");
  EXPECT_EQ(Refusal([&] {
              FromConfig(fmt::format(
                  R"({{{}, "rope_scaling": {{"rope_type": "linear"{}}}}})",
                  kLlama, keys("x")));
            }),
            "rope_scaling has 5001 keys, more than the 4096 that can be right");
  std::string list = "0";
  for (int n = 1; n < 70000; ++n) list += ",0";
  EXPECT_EQ(
      Refusal([&] {
        FromConfig(fmt::format("{{{}, \"layer_types\": [{}]}}", kLlama, list));
      }),
      "layer_types has 65536 values or more, which cannot be right");
  GgufFile file;
  for (uint32_t n = 0; n < 5000; ++n) file.U32(fmt::format("k{}", n), n);
  EXPECT_EQ(Refusal([&] {
              Checkpoint::FromGguf(AsBytes(file.Bytes()), nullptr, "f");
            }),
            "'f' has 5000 keys, more than the 4096 that can be right");
}

TEST(LimitsTest, UnusedKeysAreCountedPastAFew) {
  std::string text = fmt::format("{{{}", kLlama);
  for (int n = 0; n < 20; ++n) text += fmt::format(", \"rope_x{:02}\": 1", n);
  EXPECT_EQ(
      Refusal([&] { FromConfig(text + "}"); }),
      "\"rope_x00\", \"rope_x01\", \"rope_x02\", \"rope_x03\", "
      "\"rope_x04\", \"rope_x05\", \"rope_x06\", \"rope_x07\" and 12 more "
      "are neither used by LLaMA nor known to be harmless to positions");
}

TEST(LimitsTest, ChannelsOfAHead) {
  EXPECT_EQ(Refusal([] {
              FromConfig(R"({"model_type": "llama", "hidden_size": 64,
                  "num_attention_heads": 4, "num_hidden_layers": 2,
                  "max_position_embeddings": 128, "head_dim": 65536})");
            }),
            "heads of 65536 channels are wider than any model's; at most 8192 "
            "can be right");
}

// A vocabulary of a million tokens is skipped once, not for every layer.
TEST(LimitsTest, AVocabularyCostsOnce) {
  GgufFile file;
  file.Str("general.architecture", "llama")
      .U32("llama.embedding_length", 64)
      .U32("llama.attention.head_count", 4)
      .U32("llama.block_count", 400)
      .U32("llama.context_length", 128);
  std::string tokens;
  Append<uint32_t>(tokens, 8);
  Append<uint64_t>(tokens, 1000000);
  for (int n = 0; n < 1000000; ++n) GgufFile::Text(tokens, "token");
  file.Raw("tokenizer.ggml.tokens", 9, tokens);
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("locus_vocabulary_{}.gguf", getpid());
  WriteOutput(path.string(), file.Bytes());
  const double open = Least([&] { ModelConfig::Open(path.string()); });
  const auto config = ModelConfig::Open(path.string());
  std::filesystem::remove(path);
  const double layers = Least([&] {
    for (int64_t n = 0; n < 400; ++n) config.Layer({.layer = n});
  });
  EXPECT_LT(layers, 100 * open);  // a pass per layer would take 400
}

}  // namespace
}  // namespace locus::models

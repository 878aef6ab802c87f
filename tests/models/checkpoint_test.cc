// Weights in files: valid data become views, and errors are one sentence.
#include "locus/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "locus/encodings/learned.h"
#include "locus/error.h"
#include "models/files.h"

namespace locus::models {
namespace {

std::string Floats(std::initializer_list<float> values) {
  std::string bytes;
  for (float v : values) Append(bytes, v);
  return bytes;
}

std::string Refusal(const std::string& bytes, bool gguf = false) {
  try {
    gguf ? Checkpoint::FromGguf(AsBytes(bytes), nullptr, "f")
         : Checkpoint::FromSafetensors(AsBytes(bytes), nullptr, "f");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(CheckpointTest, SafetensorsAreViews) {
  const std::string bytes = Safetensors(
      R"({"__metadata__": {"format": "pt"},
          "wpe.weight": {"dtype": "F32", "shape": [2, 2],
                         "data_offsets": [0, 16]},
          "n": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]}})",
      Floats({1, 2, 3, 4, 0, 0}));
  const auto file = Checkpoint::FromSafetensors(AsBytes(bytes), nullptr, "f");
  ASSERT_EQ(file.tensors().size(), 2u);
  const Tensor table = file.Get("wpe.weight");
  EXPECT_EQ(table.At(1, 0), 3.0);
  // The very bytes of the file.
  EXPECT_EQ(static_cast<const void*>(table.Data<float>()),
            static_cast<const void*>(bytes.data() + bytes.size() - 24));
  EXPECT_THROW(file.Get("n"), Error);  // of a type that is not supported
  EXPECT_THROW(file.Get("absent"), Error);
}

TEST(CheckpointTest, NamesMayHaveAnotherPrefix) {
  const char* config = R"({"model_type": "gpt2", "n_embd": 2, "n_head": 1,
                           "n_layer": 1, "n_positions": 2})";
  for (const char* name : {"wpe.weight", "transformer.wpe.weight",
                           "model.transformer.wpe.weight"}) {
    const std::string bytes = Safetensors(
        std::string("{\"") + name +
            R"(": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}})",
        Floats({1, 2, 3, 4}));
    const auto file = Checkpoint::FromSafetensors(AsBytes(bytes), nullptr, "f");
    const auto encoding = Build(FromConfig(config).input, file.Lookup());
    const int64_t position = 1;
    EXPECT_EQ(encoding->Embed({&position, 1}).At(0, 1), 4.0) << name;
  }
}

TEST(CheckpointTest, HostileSafetensors) {
  const auto one = [](const char* fields, size_t data = 16) {
    return Refusal(Safetensors(std::string("{\"t\": {") + fields + "}}",
                               std::string(data, '\0')));
  };
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [4], "data_offsets": [0, 16])"),
            "accepted");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [4], "data_offsets": [0, 32])"),
            "tensor 't' lies at 0 .. 32 of 16 bytes of data");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [4], "data_offsets": [16, 0])"),
            "tensor 't' lies at 16 .. 0 of 16 bytes of data");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 16])"),
            "tensor 't' has 16 bytes, which is not its shape of F32");
  // 2^62 * 4 * 8 overflows to a small number of bits.
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [4611686018427387904, 8],
                   "data_offsets": [0, 16])"),
            "tensor 't' has 16 bytes, which is not its shape of F32");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [-4], "data_offsets": [0, 16])"),
            "a size of tensor 't' must be a whole number from 0 to 2^63 - 1, "
            "got -4");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [9223372036854775808],
                   "data_offsets": [0, 16])"),
            "a size of tensor 't' must be a whole number from 0 to 2^63 - 1, "
            "got 9223372036854775808");
  EXPECT_EQ(one(R"("dtype": "F33", "shape": [4], "data_offsets": [0, 16])"),
            "tensor 't' has the unknown dtype \"F33\"");
  EXPECT_EQ(one(R"("shape": [4], "data_offsets": [0, 16])"),
            "tensor 't' has no dtype");
  EXPECT_EQ(one(R"("dtype": "F32", "shape": [4], "data_offsets": [0, 16])", 20),
            "the tensors of 'f' end at byte 16, the data at 20");
  EXPECT_EQ(
      Refusal(Safetensors(
          R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
              "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})",
          std::string(16, '\0'))),
      "tensor 'b' begins at byte 8, but the one before it ends at 12");
  EXPECT_EQ(Refusal(Safetensors(
                R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
              "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                std::string(8, '\0'))),
            "the safetensors header has the key \"a\" twice in one object");
  // A length of 2^63, and files that end immediately.
  std::string huge;
  Append<uint64_t>(huge, uint64_t{1} << 63);
  EXPECT_EQ(Refusal(huge + "{}"),
            "'f' announces a header of 9223372036854775808 bytes, of 2 in the "
            "file and at most 33554432");
  EXPECT_EQ(Refusal("abc"),
            "'f' ends too early: 1 x 8 bytes are announced at byte 0, 3 are "
            "left");
  EXPECT_EQ(Refusal(Safetensors(std::string(40, '['), "")),
            "the safetensors header is nested deeper than 32 levels");
  EXPECT_EQ(Refusal(Safetensors("{\"\xff\": 1}", ""))
                .find("the safetensors header is not valid JSON: "),
            0u);
}

// Every prefix of a valid file is rejected, and none crashes.
TEST(CheckpointTest, TruncatedFiles) {
  const std::string safe = Safetensors(
      R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
      std::string(8, '\0'));
  const std::string gguf = GgufFile()
                               .Str("general.architecture", "llama")
                               .U32("llama.block_count", 2)
                               .Floats("a", {2, 3}, {1, 2, 3, 4, 5, 6})
                               .Bytes();
  ASSERT_EQ(Refusal(safe), "accepted");
  ASSERT_EQ(Refusal(gguf, true), "accepted");
  for (size_t n = 0; n < safe.size(); ++n) {
    EXPECT_NE(Refusal(safe.substr(0, n)), "accepted") << n;
  }
  // The last 8 bytes pad the data.
  for (size_t n = 0; n + 8 < gguf.size(); ++n) {
    EXPECT_NE(Refusal(gguf.substr(0, n), true), "accepted") << n;
  }
}

TEST(CheckpointTest, GgufTensors) {
  const std::string bytes =
      GgufFile().Floats("a", {2, 3}, {1, 2, 3, 4, 5, 6}).Bytes();
  const auto file = Checkpoint::FromGguf(AsBytes(bytes), nullptr, "f");
  const Tensor a = file.Get("a");
  // Innermost first in the file: 3 rows of 2.
  EXPECT_EQ(a.shape(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(a.At(2, 0), 5.0);
}

TEST(CheckpointTest, HostileGguf) {
  EXPECT_EQ(Refusal("GGML....", true), "'f' is not GGUF");
  EXPECT_EQ(Refusal(GgufFile(7).Bytes(), true),
            "'f' is GGUF of version 7; versions 2 and 3 are read, "
            "little-endian");
  EXPECT_EQ(Refusal(GgufFile().U32("k", 1).U32("k", 2).Bytes(), true),
            "'f' has the key 'k' twice");
  EXPECT_EQ(Refusal(GgufFile().Raw("k", 99, "").Bytes(), true),
            "the key 'k' has a value of unknown type 99");
  EXPECT_EQ(Refusal(GgufFile().U32("general.alignment", 33).Bytes(), true),
            "general.alignment of 'f' is no power of two up to 65536");
  EXPECT_EQ(Refusal(GgufFile().Info("t", {8}, 0, 64).Bytes(), true),
            "tensor 't' lies at 64 + 32 bytes of 0 bytes of data");
  EXPECT_EQ(Refusal(GgufFile().Info("t", {8}, 0, 3).Bytes(), true),
            "tensor 't' is at byte 3, which is no multiple of 32");
  EXPECT_EQ(
      Refusal(GgufFile().Info("t", {1ULL << 62, 1ULL << 62}, 0, 0).Bytes(),
              true),
      "tensor 't' cannot have the shape [4611686018427387904, "
      "4611686018427387904] in type F32");
  EXPECT_EQ(Refusal(GgufFile().Info("t", {7}, 8, 0).Bytes(), true),
            "tensor 't' cannot have the shape [7] in type Q8_0");
  EXPECT_EQ(Refusal(GgufFile().Info("t", {1, 1, 1, 1, 1}, 0, 0).Bytes(), true),
            "tensor 't' has 5 axes, more than 4");
  EXPECT_EQ(Refusal(GgufFile()
                        .Floats("a", {8}, {1, 2, 3, 4, 5, 6, 7, 8})
                        .Info("b", {8}, 0, 0)
                        .Bytes(),
                    true),
            "tensors 'a' and 'b' overlap");
  // Lists of 2^63 numbers, and of 2^63 strings.
  for (uint32_t item : {6U, 8U, 9U}) {
    std::string list;
    Append<uint32_t>(list, item);
    Append<uint64_t>(list, uint64_t{1} << 63);
    const std::string said =
        Refusal(GgufFile().Raw("k", 9, list).Bytes(), true);
    EXPECT_NE(said, "accepted");
    EXPECT_LT(said.size(), 200u);
  }
}

TEST(CheckpointTest, IndexOfShards) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("locus_shards_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  write("1.safetensors",
        Safetensors(
            R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
            Floats({1})));
  write("2.safetensors",
        Safetensors(
            R"({"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
            Floats({2})));
  write("index.json", R"({"weight_map": {"a": "1.safetensors",
                                         "b": "2.safetensors"}})");
  write("outside.json", R"({"weight_map": {"a": "../1.safetensors"}})");
  Tensor b;
  {
    const auto file = Checkpoint::Open((folder / "index.json").string());
    b = file.Get("b");
    EXPECT_EQ(file.Get("a").At(0), 1.0);
  }
  EXPECT_EQ(b.At(0), 2.0);  // the mapping outlives the checkpoint
  EXPECT_THROW(Checkpoint::Open((folder / "outside.json").string()), Error);
  EXPECT_THROW(Checkpoint::Open((folder / "none.gguf").string()), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace locus::models

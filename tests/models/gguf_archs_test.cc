// Architectures of GGUF files that are read directly: what llama.cpp's code
// does for them that no key says.
#include <gtest/gtest.h>

#include <cmath>

#include "locus/encodings/alibi.h"
#include "locus/error.h"
#include "models/files.h"
#include "models/published.h"

namespace locus::models {
namespace {

// Eight layers of four heads of 16, two of them key heads.
GgufFile Small(const std::string& arch, uint32_t layers = 8) {
  GgufFile file;
  file.Str("general.architecture", arch)
      .U32(arch + ".block_count", layers)
      .U32(arch + ".context_length", 1024)
      .U32(arch + ".embedding_length", 64)
      .U32(arch + ".attention.head_count", 4)
      .U32(arch + ".attention.head_count_kv", 2);
  return file;
}

GgufFile& Flags(GgufFile& file, const std::string& key,
                const std::vector<bool>& flags) {
  std::string bytes;
  Append<uint32_t>(bytes, 7);
  Append<uint64_t>(bytes, flags.size());
  for (const bool flag : flags) bytes += flag ? '\1' : '\0';
  return file.Raw(key, 9, bytes);
}

GgufFile& Counts(GgufFile& file, const std::string& key,
                 const std::vector<uint32_t>& counts) {
  std::string bytes;
  Append<uint32_t>(bytes, 4);
  Append<uint64_t>(bytes, counts.size());
  for (const uint32_t count : counts) Append<uint32_t>(bytes, count);
  return file.Raw(key, 9, bytes);
}

LayerPosition Read(const GgufFile& file, int64_t layer = 0,
                   const std::string& part = "") {
  const std::string bytes = file.Bytes();
  return FromGguf(AsBytes(bytes), "f", {.layer = layer, .part = part});
}

std::string Refusal(const GgufFile& file, int64_t layer = 0) {
  try {
    Read(file, layer);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(GgufArchsTest, PairLayoutIsThatOfLlamaCpp) {
  for (const char* arch :
       {"deci",     "xverse",        "internlm2",    "minicpm",    "arctic",
        "deepseek", "deepseek2-ocr", "chatglm",      "chameleon",  "bailingmoe",
        "arcee",    "ernie4_5",      "ernie4_5-moe", "mistral3",   "maincoder",
        "nanbeige", "llama-embed",   "neo-bert",     "granitemoe", "llada"}) {
    const LayerPosition p = Read(Small(arch), 1);
    EXPECT_EQ(PositionFacts(p), "rope interleaved 16 of 16 base 10000") << arch;
  }
  for (const char* arch :
       {"dbrx",           "eurobert",       "bitnet",    "qwen",
        "dream",          "llada-moe",      "rnd1",      "olmoe",
        "phimoe",         "plamo",          "openelm",   "codeshell",
        "orion",          "nemotron",       "exaone",    "dots1",
        "hunyuan-moe",    "hunyuan-dense",  "jais2",     "hy_v3",
        "seed_oss",       "grovemoe",       "apertus",   "minimax-m2",
        "cogvlm",         "pangu-embedded", "talkie",    "bailingmoe2",
        "nomic-bert-moe", "jina-bert-v3",   "falcon-h1", "grok",
        "glm4moe"}) {
    const LayerPosition p = Read(Small(arch), 1);
    EXPECT_EQ(PositionFacts(p), "rope halves 16 of 16 base 10000") << arch;
  }
}

TEST(GgufArchsTest, MetadataIsHonoured) {
  GgufFile file = Small("seed_oss");
  file.F32("seed_oss.rope.freq_base", 1e6F)
      .U32("seed_oss.attention.key_length", 32)
      .U32("seed_oss.attention.value_length", 24)
      .U32("seed_oss.rope.dimension_count", 8)
      .Str("seed_oss.rope.scaling.type", "linear")
      .F32("seed_oss.rope.scaling.factor", 4.0F);
  const LayerPosition p = Read(file);
  EXPECT_EQ(PositionFacts(p), "rope halves 8 of 32 base 1000000 linear 4");
  EXPECT_EQ(CallFacts(p), "4/2 heads, d 32, causal, length 1024");
  EXPECT_EQ(p.value_dim, 24);
}

TEST(GgufArchsTest, Diffusion) {
  for (const char* arch : {"dream", "llada", "llada-moe", "rnd1"}) {
    EXPECT_FALSE(Read(Small(arch)).causal) << arch;
  }
  GgufFile told = Small("eurobert");
  told.Bool("eurobert.attention.causal", false);
  EXPECT_FALSE(Read(told).causal);
}

TEST(GgufArchsTest, WindowsByPeriod) {
  GgufFile plamo = Small("plamo3");
  plamo.U32("plamo3.attention.sliding_window", 100)
      .F32("plamo3.rope.freq_base", 1e6F);
  // Sliding layers have a separate base, 10000 unless the file gives one.
  EXPECT_EQ(PositionFacts(Read(plamo, 6)), "rope halves 16 of 16 base 10000");
  EXPECT_EQ(CallFacts(Read(plamo, 6)),
            "4/2 heads, d 16, causal, length 1024, window 99+0");
  EXPECT_EQ(PositionFacts(Read(plamo, 7)), "rope halves 16 of 16 base 1000000");
  EXPECT_FALSE(Read(plamo, 7).window);

  // The first of four layers is full, and full layers do not rotate.
  GgufFile thinker = Small("smallthinker");
  thinker.U32("smallthinker.attention.sliding_window", 77);
  EXPECT_EQ(PositionFacts(Read(thinker, 4)), "none");
  EXPECT_EQ(CallFacts(Read(thinker, 5)),
            "4/2 heads, d 16, causal, length 1024, window 4095+0");

  // Half of the window to either side.
  GgufFile modern = Small("modern-bert");
  modern.U32("modern-bert.attention.sliding_window", 128)
      .Bool("modern-bert.attention.causal", false);
  EXPECT_EQ(CallFacts(Read(modern, 1)),
            "4/2 heads, d 16, both ways, length 1024, window 64+64");
  EXPECT_FALSE(Read(modern, 3).window);
}

TEST(GgufArchsTest, WindowsOfModelsOfOneSize) {
  GgufFile small = Small("exaone4", 30);
  EXPECT_EQ(PositionFacts(Read(small, 3)), "rope halves 16 of 16 base 10000");
  GgufFile large = Small("exaone4", 64);
  EXPECT_EQ(PositionFacts(Read(large, 3)), "none");
  EXPECT_EQ(CallFacts(Read(large, 4)),
            "4/2 heads, d 16, causal, length 1024, window 4095+0");
}

TEST(GgufArchsTest, FlagsByLayer) {
  GgufFile file = Small("mimo2", 2);
  file.U32("mimo2.attention.sliding_window", 100)
      .F32("mimo2.rope.freq_base", 5e6F)
      .Floats("blk.1.attn_sinks.weight", {4}, {0, 0, 0, 0});
  Flags(file, "mimo2.attention.sliding_window_pattern", {false, true});
  EXPECT_EQ(PositionFacts(Read(file, 0)), "rope halves 16 of 16 base 5000000");
  EXPECT_EQ(PositionFacts(Read(file, 1)), "rope halves 16 of 16 base 10000");
  EXPECT_EQ(Read(file, 0).sinks, "");
  EXPECT_EQ(Read(file, 1).sinks, "attn_sinks.weight");
  GgufFile without = Small("mimo2", 2);
  without.U32("mimo2.attention.sliding_window", 100);
  EXPECT_NE(Refusal(without).find("sliding_window_pattern is missing"),
            std::string::npos);
}

TEST(GgufArchsTest, Llama4) {
  const GgufFile file = Small("llama4");
  EXPECT_EQ(PositionFacts(Read(file, 0)),
            "rope interleaved 16 of 16 base 10000");
  EXPECT_EQ(Read(file, 0).chunk, 8192);
  EXPECT_EQ(PositionFacts(Read(file, 3)), "none");
  EXPECT_EQ(CallFacts(Read(file, 3)),
            "4/2 heads, d 16, causal, length 1024, temperature 0.1 1 8192");
}

TEST(GgufArchsTest, ScalesAndCaps) {
  EXPECT_EQ(Read(Small("gemma3n")).scale, 1.0);
  const LayerPosition grok = Read(Small("grok"));
  EXPECT_DOUBLE_EQ(grok.scale, 0.08838834764831845);
  EXPECT_EQ(grok.softcap, 30.0);
  GgufFile granite = Small("granitemoe");
  granite.F32("granitemoe.attention.scale", 0.25F);
  EXPECT_EQ(Read(granite).scale, 0.25);
  EXPECT_EQ(Read(Small("jais")).scale, 1.0 / 16.0);
}

TEST(GgufArchsTest, HybridsExplainThemselves) {
  GgufFile next = Small("qwen3next");
  EXPECT_FALSE(Read(next, 0).attends);
  EXPECT_TRUE(Read(next, 3).attends);
  next.U32("qwen3next.full_attention_interval", 2);
  EXPECT_TRUE(Read(next, 1).attends);

  GgufFile jamba;
  jamba.Str("general.architecture", "jamba")
      .U32("jamba.block_count", 2)
      .U32("jamba.embedding_length", 64)
      .U32("jamba.attention.head_count", 4);
  Counts(jamba, "jamba.attention.head_count_kv", {0, 2});
  EXPECT_FALSE(Read(jamba, 0).attends);
  EXPECT_EQ(PositionFacts(Read(jamba, 1)), "none");
  EXPECT_EQ(Read(jamba, 1).kv_heads, 2);

  GgufFile mamba;
  mamba.Str("general.architecture", "mamba")
      .U32("mamba.block_count", 2)
      .U32("mamba.embedding_length", 64);
  EXPECT_FALSE(Read(mamba, 1).attends);
}

TEST(GgufArchsTest, Sections) {
  GgufFile file = Small("qwen2vl");
  Counts(file, "qwen2vl.rope.dimension_sections", {2, 3, 3, 0});
  EXPECT_EQ(Read(file).attention.name, "mrope");
  EXPECT_NE(Refusal(Small("qwen2vl")).find("dimension_sections"),
            std::string::npos);
}

TEST(GgufArchsTest, LatentHeads) {
  GgufFile file = Small("plm");
  file.U32("plm.attention.key_length", 24).U32("plm.rope.dimension_count", 8);
  EXPECT_EQ(PositionFacts(Read(file)),
            "rope interleaved 8 of 24 base 10000 from 16");
}

TEST(GgufArchsTest, BiasesAndTables) {
  const LayerPosition refact = Read(Small("refact"));
  const auto* alibi =
      dynamic_cast<const Alibi*>(refact.attention.encoding.get());
  ASSERT_NE(alibi, nullptr);
  EXPECT_EQ(alibi->ramp().past, Alibi::Slopes(4));
  EXPECT_EQ(PositionFacts(Read(Small("starcoder"))),
            "none + learned position_embd.weight 1024x64");
  GgufFile t5 = Small("t5");
  t5.U32("t5.attention.relative_buckets_count", 32)
      .U32("t5.decoder_block_count", 6);
  EXPECT_EQ(PositionFacts(Read(t5, 0, "encoder")),
            "t5 enc.blk.0.attn_rel_b.weight 32x4");
  EXPECT_EQ(PositionFacts(Read(t5)), "t5 dec.blk.0.attn_rel_b.weight 32x4");
  EXPECT_EQ(Read(t5).layers, 6);
  EXPECT_EQ(Read(t5).scale, 1.0);
}

TEST(GgufArchsTest, RefusalsSayWhy) {
  EXPECT_EQ(Refusal(Small("eagle3")),
            "the GGUF architecture 'eagle3' is not read: it drafts from the "
            "states of another model");
  EXPECT_NE(Refusal(Small("no-such")).find("'no-such' is not known"),
            std::string::npos);
  // A key related to positions that nothing reads.
  GgufFile file = Small("orion");
  file.U32("orion.attention.sliding_window", 7);
  EXPECT_NE(Refusal(file).find("orion.attention.sliding_window"),
            std::string::npos);
  EXPECT_NE(Refusal(Small("orion"), 8).find("layers 0 .. 7"),
            std::string::npos);
}

}  // namespace
}  // namespace locus::models

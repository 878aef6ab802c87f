#include "models/gguf_archs.h"

#include <array>

namespace locus::models {
namespace {

constexpr auto kPairs = PairLayout::kInterleaved;
constexpr auto kHalves = PairLayout::kHalves;

constexpr GgufArch Family(const char* name, const char* type,
                          PairLayout layout) {
  return {.name = name, .layout = layout, .text = type};
}
constexpr GgufArch Rotary(const char* name, const char* title,
                          PairLayout layout) {
  return {.name = name,
          .scheme = GgufScheme::kRotary,
          .layout = layout,
          .text = title};
}
constexpr GgufArch BothWays(GgufArch arch) {
  arch.both_ways = true;
  return arch;
}
constexpr GgufArch Hybrid(GgufArch arch, int64_t interval = 0) {
  arch.hybrid = true;
  arch.interval = interval;
  return arch;
}
constexpr GgufArch Scaled(GgufArch arch, GgufScale scale) {
  arch.scale = scale;
  return arch;
}
constexpr GgufArch Sections(GgufArch arch, MRopeSections dealing,
                            bool optional = false) {
  arch.sections = dealing;
  arch.sections_optional = optional;
  return arch;
}
// Sliding windows in all layers but every period-th.
constexpr GgufArch Slides(GgufArch arch, int64_t period,
                          bool full_first = false) {
  arch.windows = GgufWindows::kPattern;
  arch.period = period;
  arch.full_first = full_first;
  return arch;
}
constexpr GgufArch Listed(GgufArch arch) {
  arch.windows = GgufWindows::kListed;
  return arch;
}
constexpr GgufArch Still(GgufArch arch, GgufStill still) {
  arch.still = still;
  return arch;
}
// Sliding layers use a base of 10000 unless the file gives another, and no
// scaling.
constexpr GgufArch OwnRope(GgufArch arch) {
  arch.own_base = true;
  arch.scaled = false;
  return arch;
}
constexpr GgufArch Latent(const char* name, const char* title,
                          PairLayout layout) {
  return {.name = name,
          .scheme = GgufScheme::kLatent,
          .layout = layout,
          .text = title};
}
constexpr GgufArch Magnified(GgufArch arch) {
  arch.mscale = true;
  return arch;
}
constexpr GgufArch Of(const char* name, GgufScheme scheme, const char* text) {
  return {.name = name, .scheme = scheme, .text = text};
}

constexpr GgufArch Radius(GgufArch arch) {
  arch.radius = true;
  return arch;
}

constexpr GgufArch Llama4() {
  GgufArch arch = Slides(Rotary("llama4", "Llama 4", kPairs), 4);
  arch.window = 8192;
  arch.window_fixed = true;
  arch.chunks = true;
  arch.still = GgufStill::kEveryFour;
  return arch;
}
constexpr GgufArch Exaone4() {
  GgufArch arch = Still(Slides(Rotary("exaone4", "EXAONE 4", kHalves), 4),
                        GgufStill::kFull);
  arch.only_layers = 64;
  arch.window = 4096;
  return arch;
}
constexpr GgufArch SmallThinker() {
  GgufArch arch =
      Still(Slides(Rotary("smallthinker", "SmallThinker", kHalves), 4,
                   /*full_first=*/true),
            GgufStill::kFull);
  arch.window = 4096;
  arch.window_fixed = true;
  return arch;
}
constexpr GgufArch Cohere2Moe() {
  GgufArch arch = Still(Slides(Rotary("cohere2moe", "Cohere 2 MoE", kPairs), 4,
                               /*full_first=*/true),
                        GgufStill::kFull);
  arch.still_leads_rotate = true;
  return arch;
}
constexpr GgufArch Grok() {
  GgufArch arch = Scaled(Rotary("grok", "Grok", kHalves), GgufScale::kOutput);
  arch.softcap = 30.0;
  return arch;
}
constexpr GgufArch Lfm2(const char* name, const char* title) {
  GgufArch arch = Hybrid(Rotary(name, title, kHalves));
  arch.windows = GgufWindows::kAll;
  return arch;
}
constexpr GgufArch Step35() {
  GgufArch arch = OwnRope(Listed(Rotary("step35", "Step 3.5", kHalves)));
  arch.half_full = true;
  return arch;
}
constexpr GgufArch MiMo2() {
  GgufArch arch = OwnRope(Listed(Rotary("mimo2", "MiMo V2", kHalves)));
  arch.sinks = true;
  return arch;
}
constexpr GgufArch Mistral3() {
  GgufArch arch = Rotary("mistral3", "Mistral 3", kPairs);
  arch.temperature = true;
  return arch;
}
constexpr GgufArch Laguna() {
  GgufArch arch = Slides(Rotary("laguna", "Laguna", kHalves), 4,
                         /*full_first=*/true);
  arch.scaled = false;
  return arch;
}

constexpr auto kChunked = MRopeSections::kChunked;
constexpr auto kInterleaved = MRopeSections::kInterleaved;

constexpr std::array kArchs = {
    Of("clip", GgufScheme::kRefused, "it is a tower beside a text model"),
    Family("llama", "llama", kPairs),
    Llama4(),
    Hybrid(Rotary("deci", "DeciLM", kPairs)),
    Family("falcon", "falcon", kHalves),
    Grok(),
    Family("gpt2", "gpt2", kHalves),
    Of("gptj", GgufScheme::kRefused, "llama.cpp has no code for it"),
    Family("gptneox", "gpt_neox", kHalves),
    Family("mpt", "mpt", kHalves),
    Family("baichuan", "baichuan", kPairs),
    Of("starcoder", GgufScheme::kLearned, "StarCoder"),
    Of("refact", GgufScheme::kAlibi, "Refact"),
    Family("bert", "bert", kHalves),
    Radius(OwnRope(Slides(Rotary("modern-bert", "ModernBERT", kHalves), 3,
                          /*full_first=*/true))),
    Family("nomic-bert", "nomic_bert", kHalves),
    Rotary("nomic-bert-moe", "Nomic MoE", kHalves),
    Rotary("neo-bert", "NeoBERT", kPairs),
    Of("jina-bert-v2", GgufScheme::kAlibi, "Jina 2"),
    Rotary("jina-bert-v3", "Jina 3", kHalves),
    Rotary("eurobert", "EuroBERT", kHalves),
    Family("bloom", "bloom", kHalves),
    Family("stablelm", "stablelm", kHalves),
    Rotary("qwen", "Qwen", kHalves),
    Family("qwen2", "qwen2", kHalves),
    Family("qwen2moe", "qwen2_moe", kHalves),
    Sections(Rotary("qwen2vl", "Qwen2-VL", kHalves), kChunked),
    Family("qwen3", "qwen3", kHalves),
    Family("qwen3moe", "qwen3_moe", kHalves),
    Hybrid(Rotary("qwen3next", "Qwen3-Next", kHalves), 4),
    Sections(Rotary("qwen3vl", "Qwen3-VL", kHalves), kInterleaved),
    Sections(Rotary("qwen3vlmoe", "Qwen3-VL MoE", kHalves), kInterleaved),
    Hybrid(Sections(Rotary("qwen35", "Qwen 3.5", kHalves), kInterleaved), 4),
    Hybrid(Sections(Rotary("qwen35moe", "Qwen 3.5 MoE", kHalves), kInterleaved),
           4),
    Family("phi2", "phi", kHalves),
    Family("phi3", "phi3", kHalves),
    Rotary("phimoe", "Phi 3.5 MoE", kHalves),
    Rotary("plamo", "PLaMo", kHalves),
    Hybrid(Rotary("plamo2", "PLaMo 2", kHalves)),
    OwnRope(Slides(Rotary("plamo3", "PLaMo 3", kHalves), 8)),
    Rotary("codeshell", "CodeShell", kHalves),
    Rotary("orion", "Orion", kHalves),
    Rotary("internlm2", "InternLM 2", kPairs),
    Rotary("minicpm", "MiniCPM", kPairs),
    Latent("minicpm3", "MiniCPM 3", kHalves),
    Family("gemma", "gemma", kHalves),
    Family("gemma2", "gemma2", kHalves),
    Family("gemma3", "gemma3_text", kHalves),
    OwnRope(Scaled(Slides(Rotary("gemma3n", "Gemma 3n", kHalves), 5),
                   GgufScale::kOne)),
    OwnRope(
        Scaled(Listed(Rotary("gemma4", "Gemma 4", kHalves)), GgufScale::kOne)),
    Of("gemma4-assistant", GgufScheme::kRefused,
       "it attends to the keys of another model"),
    BothWays(Radius(OwnRope(
        Slides(Rotary("gemma-embedding", "EmbeddingGemma", kHalves), 6)))),
    Family("starcoder2", "starcoder2", kHalves),
    Of("mamba", GgufScheme::kRecurrent, "Mamba"),
    Of("mamba2", GgufScheme::kRecurrent, "Mamba 2"),
    Hybrid(Of("jamba", GgufScheme::kNone, "Jamba")),
    Rotary("falcon-h1", "Falcon-H1", kHalves),
    Rotary("xverse", "XVERSE", kPairs),
    Family("command-r", "cohere", kPairs),
    Family("cohere2", "cohere2", kPairs),
    Cohere2Moe(),
    Rotary("dbrx", "DBRX", kHalves),
    Family("olmo", "olmo", kPairs),
    Family("olmo2", "olmo2", kHalves),
    Rotary("olmoe", "OLMoE", kHalves),
    Still(Slides(Rotary("muse-glimmer", "Muse Glimmer", kPairs), 4),
          GgufStill::kFull),
    Rotary("openelm", "OpenELM", kHalves),
    Rotary("arctic", "Arctic", kPairs),
    Rotary("deepseek", "DeepSeek", kPairs),
    Family("deepseek2", "deepseek_v3", kPairs),
    Rotary("deepseek2-ocr", "DeepSeek-OCR", kPairs),
    Magnified(Latent("deepseek32", "DeepSeek V3.2", kPairs)),
    Of("deepseek4", GgufScheme::kRefused,
       "keys that each sum up several tokens stand beside those of its window"),
    Rotary("chatglm", "ChatGLM", kPairs),
    Family("glm4", "glm4", kPairs),
    Sections(Rotary("glm4moe", "GLM 4.5", kHalves), kChunked,
             /*optional=*/true),
    Magnified(Latent("glm-dsa", "GLM 5", kPairs)),
    Rotary("bitnet", "BitNet", kHalves),
    Of("t5", GgufScheme::kBuckets, "T5"),
    Of("t5encoder", GgufScheme::kBuckets, "T5 encoder"),
    Scaled(Of("jais", GgufScheme::kAlibi, "Jais"), GgufScale::kInverse),
    Rotary("jais2", "Jais 2", kHalves),
    Rotary("nemotron", "Nemotron", kHalves),
    Hybrid(Of("nemotron_h", GgufScheme::kNone, "Nemotron-H")),
    Hybrid(Of("nemotron_h_moe", GgufScheme::kNone, "Nemotron-H MoE")),
    Rotary("exaone", "EXAONE", kHalves),
    Exaone4(),
    Still(Slides(Rotary("exaone-moe", "EXAONE MoE", kHalves), 4),
          GgufStill::kFull),
    Of("rwkv6", GgufScheme::kRecurrent, "RWKV 6"),
    Of("rwkv6qwen2", GgufScheme::kRecurrent, "RWKV 6 of Qwen 2"),
    Of("rwkv7", GgufScheme::kRecurrent, "RWKV 7"),
    Of("arwkv7", GgufScheme::kRecurrent, "ARWKV 7"),
    Family("granite", "granite", kPairs),
    Scaled(Rotary("granitemoe", "Granite MoE", kPairs), GgufScale::kKey),
    Still(Hybrid(Scaled(Rotary("granitehybrid", "Granite 4 hybrid", kPairs),
                        GgufScale::kKey)),
          GgufStill::kSwitch),
    Of("graniteswitch", GgufScheme::kRefused,
       "a router of adapters attends beside its layers"),
    Still(Scaled(Listed(Rotary("granite_swa", "Granite SWA", kPairs)),
                 GgufScale::kKey),
          GgufStill::kListed),
    Rotary("chameleon", "Chameleon", kPairs),
    Of("wavtokenizer-dec", GgufScheme::kRefused,
       "its attention stands among convolutions"),
    Latent("plm", "PLM", kPairs),
    Rotary("bailingmoe", "Ling", kPairs),
    Rotary("bailingmoe2", "Ling 2", kHalves),
    Hybrid(Latent("bailingmoe3", "Ling 3", kPairs)),
    Rotary("dots1", "dots.llm1", kHalves),
    Of("dots3note", GgufScheme::kRefused,
       "its sliding layers have latents of their own"),
    Rotary("arcee", "Arcee", kPairs),
    Still(Slides(Rotary("afmoe", "AFMoE", kHalves), 4), GgufStill::kEveryFour),
    Laguna(),
    Rotary("ernie4_5", "Ernie 4.5", kPairs),
    Rotary("ernie4_5-moe", "Ernie 4.5 MoE", kPairs),
    Rotary("hunyuan-moe", "HunYuan MoE", kHalves),
    Rotary("hunyuan-dense", "HunYuan", kHalves),
    Of("hunyuan_vl", GgufScheme::kRefused,
       "its positions have axes beside time, height and width"),
    Rotary("hy_v3", "HY V3", kHalves),
    Family("smollm3", "smollm3", kPairs),
    Family("gpt-oss", "gpt_oss", kHalves),
    Lfm2("lfm2", "LFM 2"),
    Lfm2("lfm2moe", "LFM 2 MoE"),
    BothWays(Rotary("dream", "Dream", kHalves)),
    SmallThinker(),
    BothWays(Rotary("llada", "LLaDA", kPairs)),
    BothWays(Rotary("llada-moe", "LLaDA MoE", kHalves)),
    Rotary("seed_oss", "Seed-OSS", kHalves),
    Rotary("grovemoe", "GroveMoE", kHalves),
    Rotary("apertus", "Apertus", kHalves),
    Hybrid(Rotary("minimax-01", "MiniMax-01", kHalves), 8),
    Rotary("minimax-m2", "MiniMax M2", kHalves),
    Of("minimax-m3", GgufScheme::kRefused,
       "an indexer picks blocks of keys by their content"),
    Rotary("cogvlm", "CogVLM", kHalves),
    BothWays(Rotary("rnd1", "RND1", kHalves)),
    Rotary("pangu-embedded", "Pangu", kHalves),
    Mistral3(),
    Of("eagle3", GgufScheme::kRefused,
       "it drafts from the states of another model"),
    Of("dflash", GgufScheme::kRefused,
       "it drafts from the states of another model"),
    Of("mistral4", GgufScheme::kRefused,
       "its latent attention has a factor of the query besides"),
    Sections(Rotary("paddleocr", "PaddleOCR-VL", kHalves), kChunked),
    MiMo2(),
    Step35(),
    Rotary("llama-embed", "LLaMA for embeddings", kPairs),
    Rotary("maincoder", "Maincoder", kPairs),
    Hybrid(Of("kimi-linear", GgufScheme::kNone, "Kimi Linear")),
    Hybrid(Of("kimi-k3", GgufScheme::kNone, "Kimi K3")),
    Rotary("talkie", "Talkie", kHalves),
    Slides(Rotary("mellum", "Mellum", kHalves), 4),
    Rotary("nanbeige", "Nanbeige", kPairs),
    Of("qwen3tts", GgufScheme::kRefused, "it speaks by several stacks"),
    Of("pockettts", GgufScheme::kRefused, "it speaks by several stacks"),
};

}  // namespace

std::span<const GgufArch> GgufArchs() { return kArchs; }

}  // namespace locus::models

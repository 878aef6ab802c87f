// Text models of vision-language models: M-RoPE over time, height and width.
#include <array>

#include "locus/encodings/rope2d.h"
#include "models/families.h"
#include "models/tuned.h"

namespace locus::models {

void ReadQwenWindow(Reader& r);  // family_layered.cc

namespace {

void QwenVl(Reader& r, const SizeKeys& sizes, MRopeSections dealing,
            double base, std::array<int64_t, 3> sections) {
  r.Sizes(sizes);
  ReadQwenWindow(r);
  r.Rope({.base = base});
  if (r.out.rotary->changes_with_length) {
    Fail("{} scaling under M-RoPE would change with three lengths at once",
         r.out.rotary->scaling);
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = r.c.MaybeObject(key);
    if (!object) continue;
    if (const auto list = object->MaybeInts("mrope_section", 8)) {
      if (list->size() != 3) {
        Fail("{} must have 3 entries, got {}", object->Path("mrope_section"),
             list->size());
      }
      sections = {(*list)[0], (*list)[1], (*list)[2]};
    }
    const auto interleaved = object->MaybeFlag("mrope_interleaved");
    if (interleaved &&
        *interleaved != (dealing == MRopeSections::kInterleaved)) {
      r.Refuse("{} = {} is not what {} does", object->Path("mrope_interleaved"),
               *interleaved, r.out.family);
    }
  }
  const int64_t dim = r.out.head_dim;
  auto rotation = Rotation{};
  rotation.theta = r.out.rotary->theta;
  rotation.gain = r.out.rotary->gain;
  rotation.angles = r.options.angles;
  const auto& [t, h, w] = sections;
  std::string words = r.out.attention.words;
  words.replace(
      0, 4,
      fmt::format(
          "M-RoPE {}+{}+{} {}", t, h, w,
          dealing == MRopeSections::kChunked ? "in chunks" : "interleaved"));
  r.Attend("mrope", words,
           std::make_shared<Tuned>(
               std::make_shared<MRope>(dim, PairLayout::kHalves, sections,
                                       dealing, r.out.rotary->base),
               QueryTemperature{}, rotation));
}

void Qwen2Vl(Reader& r) {
  QwenVl(r, {.default_kv_heads = 8}, MRopeSections::kChunked, 1e6,
         {16, 24, 24});
}

void Qwen3Vl(Reader& r) {
  const bool experts = r.out.model_type.starts_with("qwen3_vl_moe");
  QwenVl(r,
         {.default_kv_heads = experts ? 16 : 32,
          .default_head_dim = experts ? 0 : 128},
         MRopeSections::kInterleaved, 5e5, {24, 20, 20});
}

}  // namespace

std::vector<Family> MultimodalFamilies() {
  return {
      {{"Qwen2-VL, Qwen2.5-VL",
        {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
        "M-RoPE, halves, sections 16+24+24 in chunks",
        "`type: mrope` is no scaling; sections are of pairs, not channels"},
       Qwen2Vl},
      {{"Qwen3-VL",
        {"qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"},
        "M-RoPE, halves, sections 24+20+20 interleaved",
        "sections are dealt t h w t h w, not in chunks"},
       Qwen3Vl},
  };
}

}  // namespace locus::models

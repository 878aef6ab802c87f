// Text models of vision-language models: M-RoPE over time, height and width.
#include <array>

#include "locus/encodings/rope2d.h"
#include "models/families.h"
#include "models/rotary_rules.h"

namespace locus::models {

void ReadQwenWindow(Reader& r);  // family_layered.cc

void SetSections(Reader& r, const std::array<int64_t, 3>& sections,
                 MRopeSections dealing) {
  const auto& [t, h, w] = sections;
  const int64_t pairs = r.out.rotary->rotary_dim / 2;
  if (t + h + w != pairs) {
    Fail("mrope_section must sum to the {} pairs that rotate, got {} + {} + {}",
         pairs, t, h, w);
  }
  const bool chunked = dealing == MRopeSections::kChunked;
  std::vector<int32_t> axis;
  for (int64_t p = 0; p < pairs; ++p) {
    if (chunked) {
      axis.push_back(p < t ? 0 : p < t + h ? 1 : 2);
    } else {
      axis.push_back(p % 3 == 1 && p < 3 * h   ? 1
                     : p % 3 == 2 && p < 3 * w ? 2
                                               : 0);
    }
  }
  r.Sections(axis, fmt::format("M-RoPE {}+{}+{} {}", t, h, w,
                               chunked ? "in chunks" : "interleaved"));
}

std::array<int64_t, 3> ReadSections(Reader& r, std::array<int64_t, 3> sections,
                                    MRopeSections dealing) {
  const bool interleaved = dealing == MRopeSections::kInterleaved;
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
    const auto flag = object->MaybeFlag("mrope_interleaved");
    if (flag && *flag != interleaved) {
      r.Refuse("{} = {} is not what {} does", object->Path("mrope_interleaved"),
               *flag, r.out.family);
    }
  }
  return sections;
}

namespace {

void QwenVl(Reader& r, const SizeKeys& sizes, MRopeSections dealing,
            double base, const std::array<int64_t, 3>& sections) {
  r.Sizes(sizes);
  ReadQwenWindow(r);
  r.Rope({.base = base});
  SetSections(r, ReadSections(r, sections, dealing), dealing);
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

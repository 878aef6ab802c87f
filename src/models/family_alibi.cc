// Linear biases: BLOOM, MPT, and the two forms of Falcon and Baichuan.
#include <bit>
#include <cmath>

#include "locus/encodings/alibi.h"
#include "models/families.h"

namespace locus::models {

void ReadBaichuanRope(Reader& r);  // family_rotary.cc
void ReadFalconRope(Reader& r);

namespace {

void Bloom(Reader& r) {
  r.Sizes({.model_dim = {"n_embed", "hidden_size"},
           .q_heads = {"num_attention_heads", "n_head"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"n_layer", "num_hidden_layers"},
           .length = {"seq_length"},
           .length_required = false});
  r.Attend("alibi", fmt::format("ALiBi, {} slopes", r.out.q_heads),
           std::make_shared<Alibi>(r.out.q_heads));
}

// MPT: the slopes of the next power of two, every other one first.
std::vector<double> MptSlopes(int64_t heads, double bias_max) {
  const auto above =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads)));
  std::vector<double> all;
  for (int64_t j = 1; j <= above; ++j) {
    all.push_back(std::exp2(-bias_max * static_cast<double>(j) /
                            static_cast<double>(above)));
  }
  if (above == heads) return all;
  std::vector<double> slopes;
  for (size_t first : {size_t{1}, size_t{0}}) {
    for (size_t j = first; j < all.size(); j += 2) slopes.push_back(all[j]);
  }
  slopes.resize(static_cast<size_t>(heads));
  return slopes;
}

void Mpt(Reader& r) {
  r.Sizes({.model_dim = {"d_model"},
           .q_heads = {"n_heads"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"n_layers"},
           .length = {"max_seq_len"}});
  const bool learned = r.c.FlagOr("learned_pos_emb", true);
  bool alibi = true;  // the default of the model's own code
  double bias_max = 8.0;
  // The object may have the keys of any config, if the model's own code saved
  // it.
  if (const auto a = r.c.MaybeConfig("attn_config")) {
    alibi = a->FlagOr("alibi", true);
    bias_max = a->NumberOr("alibi_bias_max", 8.0, 1e-3, 1024.0);
    if (const auto scale = a->MaybeNumber("softmax_scale", 1e-9, 1e9)) {
      r.out.scale = *scale;
    }
    if (const auto kv = a->MaybeInt("kv_n_heads", 1, kMostHeads)) {
      r.Heads(r.out.model_dim, r.out.q_heads, *kv, r.out.head_dim);
    }
    a->Find("attn_type");  // multihead, which kv_n_heads implies
    for (const char* key : {"prefix_lm", "attn_uses_sequence_id"}) {
      if (a->FlagOr(key, false)) {
        r.Refuse("{} = true asks for a mask that the call must bring",
                 a->Path(key));
      }
    }
  }
  if (!alibi) {
    r.NoPosition("plain attention");
    if (learned) {
      r.Learned("transformer.wpe.weight", r.out.trained_length, r.out.model_dim,
                0);
    }
    return;
  }
  r.Attend(
      "alibi",
      fmt::format("ALiBi, {} slopes, bias_max {}", r.out.q_heads, bias_max),
      std::make_shared<Alibi>(
          r.out.q_heads,
          AlibiOptions{.slopes = MptSlopes(r.out.q_heads, bias_max)}));
}

// Rounds to bfloat16, ties to even.
double ToBFloat16(double x) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  return std::bit_cast<float>(rounded);
}

void Falcon(Reader& r) {
  const int64_t width = r.c.IntOf({"hidden_size", "n_embed"}, 1, kMostWidth);
  const int64_t heads =
      r.c.IntOf({"num_attention_heads", "n_head"}, 1, kMostHeads);
  if (width % heads != 0) {
    Fail("{} = {} is not a multiple of {} heads", r.c.Path("hidden_size"),
         width, heads);
  }
  const bool grouped = r.c.FlagOr("new_decoder_architecture", false);
  const bool one = r.c.FlagOr("multi_query", true);
  const auto kv = r.c.MaybeIntOf({"num_kv_heads", "n_head_kv"}, 1, kMostHeads);
  r.Heads(width, heads,
          grouped ? kv.value_or(heads)
          : one   ? 1
                  : heads,
          width / heads);
  r.Layers(r.c.IntOf({"num_hidden_layers", "n_layer"}, 1, kMostLayers));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 2048, 1, kMostLength);
  if (!r.c.FlagOr("alibi", false)) {
    ReadFalconRope(r);
    return;
  }
  r.Ignore({"rope_theta", "rope_scaling", "rope_parameters"});
  std::vector<double> slopes = Alibi::Slopes(heads);
  for (double& slope : slopes) slope = ToBFloat16(slope) * r.out.scale;
  r.Warn(
      "Falcon rounds slope times position to bfloat16; here only the slope is, "
      "so far keys differ by up to 1/256 of their bias");
  r.Attend("alibi",
           fmt::format("ALiBi, {} slopes in bfloat16, times 1/sqrt(d)", heads),
           std::make_shared<Alibi>(heads, AlibiOptions{.slopes = slopes}));
}

// The 7B models rotate, and the 13B models have linear biases; only the
// spelling of the length distinguishes them.
void Baichuan(Reader& r) {
  if (r.c.Has("max_position_embeddings")) {
    ReadBaichuanRope(r);
    return;
  }
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {"model_max_length"}});
  r.Attend("alibi", fmt::format("ALiBi, {} slopes", r.out.q_heads),
           std::make_shared<Alibi>(r.out.q_heads));
}

}  // namespace

std::vector<Family> AlibiFamilies() {
  return {
      {{"BLOOM",
        {"bloom"},
        "ALiBi",
        "slopes for head counts that are no power of two: those of the power "
        "below, then every other one of the power above"},
       Bloom},
      {{"MPT",
        {"mpt"},
        "ALiBi, or a learned table",
        "its own slopes for odd head counts; `alibi_bias_max`, "
        "`softmax_scale` and `alibi` are inside `attn_config`"},
       Mpt},
      {{"Falcon",
        {"falcon", "RefinedWeb", "RefinedWebModel"},
        "RoPE, halves; or ALiBi where `alibi` is true",
        "the bias is scaled by 1/sqrt(d) too, with slopes in bfloat16"},
       Falcon},
      {{"Baichuan",
        {"baichuan"},
        "7B: RoPE, halves; 13B: ALiBi",
        "one model_type for both; `max_position_embeddings` means RoPE, "
        "`model_max_length` alone ALiBi"},
       Baichuan},
  };
}

}  // namespace locus::models

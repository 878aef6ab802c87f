// Transformer-XL, XLNet and DeBERTa: tables of projected relative positions.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "locus/encodings/deberta.h"
#include "locus/encodings/transformer_xl.h"
#include "models/families.h"
#include "models/project.h"

namespace locus::models {
namespace {

// Rows of relative keys for offsets -(reach-1) .. reach-1: the sinusoid of the
// offset, clamped, through w [heads, D, model_dim].
struct XlTables {
  NeededTensor w, u, v;
  bool w_is_transposed = false;  // w stored [model_dim, heads, D]
  int64_t heads = 0, dim = 0, model_dim = 0, reach = 0;
  int64_t clamp = -1;  // below 0: none
};

Scheme XlScheme(const XlTables& t, std::string words) {
  Scheme scheme;
  scheme.name = "transformer-xl";
  scheme.words = std::move(words);
  scheme.tensors = {t.w, t.u, t.v};
  scheme.build = [t](const TensorLookup& find) {
    const Tensor w = find(t.w);
    const Tensor r = RelativeKeys(
        {.w = t.w_is_transposed ? w.Transposed(0, 1).Transposed(1, 2) : w,
         .heads = t.heads,
         .dim = t.dim,
         .model_dim = t.model_dim},
        t.reach, t.clamp);
    return std::make_shared<TransformerXL>(
        r, WithShape(find(t.u), {t.heads, t.dim}),
        WithShape(find(t.v), {t.heads, t.dim}));
  };
  return scheme;
}

int64_t Reach(Reader& r, int64_t trained) {
  const int64_t reach = r.options.length != 0 ? r.options.length : trained;
  // A row costs heads x D numbers; this many are past any trained length.
  constexpr int64_t kMostReach = int64_t{1} << 20;
  if (reach < 1 || reach > kMostReach) {
    Fail("a table of relative keys must serve 1 .. {} positions, got {}",
         kMostReach, reach);
  }
  return reach;
}

void TransformerXl(Reader& r) {
  const int64_t heads =
      r.c.IntOf({"n_head", "num_attention_heads"}, 1, kMostHeads);
  const int64_t width = r.c.IntOf({"d_model", "hidden_size"}, 1, kMostWidth);
  const int64_t dim = r.c.Int("d_head", 1, kMostWidth);
  r.Heads(width, heads, heads, dim);
  r.Layers(r.c.IntOf({"n_layer", "num_hidden_layers"}, 1, kMostLayers));
  const int64_t memory = r.c.IntOr("mem_len", 1600, 0, kMostLength);
  const int64_t clamp = r.c.IntOr("clamp_len", 1000, -1, kMostLength);
  r.Ignore({"tgt_len", "ext_len", "attn_type"});
  if (r.c.FlagOr("same_length", true) && memory > 0) r.CausalWindow(memory);
  r.out.trained_length = std::max<int64_t>(memory, 1);
  const bool untied = r.c.FlagOr("untie_r", true);
  const std::string at =
      fmt::format("transformer.layers.{}.dec_attn.", r.out.layer);
  const std::string biases = untied ? at : "transformer.";
  r.out.attention = XlScheme(
      {.w = {at + "r_net.weight", {heads * dim, width}, "relative keys"},
       .u = {biases + "r_w_bias", {heads, dim}, "content bias"},
       .v = {biases + "r_r_bias", {heads, dim}, "position bias"},
       .heads = heads,
       .dim = dim,
       .model_dim = width,
       .reach = Reach(r, r.out.trained_length),
       .clamp = clamp},
      clamp > 0 ? fmt::format("relative sinusoids, clamped at {}", clamp)
                : std::string("relative sinusoids"));
}

void XlNet(Reader& r) {
  const int64_t heads =
      r.c.IntOf({"n_head", "num_attention_heads"}, 1, kMostHeads);
  const int64_t width = r.c.IntOf({"d_model", "hidden_size"}, 1, kMostWidth);
  const int64_t dim =
      r.c.MaybeIntOf({"d_head"}, 1, kMostWidth).value_or(width / heads);
  if (dim * heads != width) {
    Fail("{} = {} is not {} heads of {}", r.c.Path("d_model"), width, heads,
         dim);
  }
  r.Heads(width, heads, heads, dim);
  r.Layers(r.c.IntOf({"n_layer", "num_hidden_layers"}, 1, kMostLayers));
  const std::string type = r.c.MaybeText("attn_type").value_or("bi");
  if (type != "bi" && type != "uni") {
    Fail("{} must be 'bi' or 'uni', got '{}'", r.c.Path("attn_type"),
         Printable(type));
  }
  r.out.causal = type == "uni";
  r.out.part = type == "uni" ? "decoder" : "encoder";
  const int64_t clamp = r.c.IntOr("clamp_len", -1, -1, kMostLength);
  r.Ignore({"mem_len", "reuse_len", "same_length", "bi_data"});
  r.Warn(
      "segment terms (r_s_bias, seg_embed) are no positions and are not in the "
      "encoding");
  const std::string at =
      fmt::format("transformer.layer.{}.rel_attn.", r.out.layer);
  r.out.attention =
      XlScheme({.w = {at + "r", {width, heads, dim}, "relative keys"},
                .u = {at + "r_w_bias", {heads, dim}, "content bias"},
                .v = {at + "r_r_bias", {heads, dim}, "position bias"},
                .w_is_transposed = true,
                .heads = heads,
                .dim = dim,
                .model_dim = width,
                .reach = Reach(r, /*trained=*/512),
                .clamp = clamp},
               "relative sinusoids in both directions");
}

// "c2p|p2c", or a list of the two.
std::vector<std::string> PosAttTypes(Reader& r) {
  const Json* value = r.c.Find("pos_att_type");
  std::vector<std::string> types;
  if (value != nullptr && value->is_string()) {
    std::stringstream text(value->get<std::string>());
    for (std::string one; std::getline(text, one, '|');) types.push_back(one);
  } else if (value != nullptr) {
    types = *r.c.MaybeTexts("pos_att_type", 8);
  }
  for (const std::string& type : types) {
    if (type != "c2p" && type != "p2c") {
      Fail("{} knows c2p and p2c, got '{}'", r.c.Path("pos_att_type"),
           Printable(type));
    }
  }
  return types;
}

void Deberta(Reader& r, bool v2) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const int64_t length = r.out.trained_length;
  const bool relative = r.c.FlagOr("relative_attention", false);
  const bool biased = r.c.FlagOr("position_biased_input", true);
  const int64_t given =
      r.c.IntOr("max_relative_positions", -1, -1, kMostLength);
  const int64_t reach = given < 1 ? length : given;
  const int64_t buckets =
      v2 ? std::max<int64_t>(r.c.IntOr("position_buckets", -1, -1, 65536), 0)
         : 0;
  const bool shared = v2 && r.c.FlagOr("share_att_key", false);
  const std::string norm =
      v2 ? r.c.MaybeText("norm_rel_ebd").value_or("none") : std::string("none");
  const auto types = PosAttTypes(r);
  const bool c2p = std::ranges::find(types, "c2p") != types.end();
  const bool p2c = std::ranges::find(types, "p2c") != types.end();
  if (biased) {
    r.Learned("deberta.embeddings.position_embeddings.weight", length,
              r.c.IntOr("embedding_size", r.out.model_dim, 1, kMostWidth), 0);
  }
  if (!relative) {
    r.NoPosition("plain attention");
    return;
  }
  const double terms = 1.0 + (c2p ? 1.0 : 0.0) + (p2c ? 1.0 : 0.0);
  r.out.scale = 1.0 / std::sqrt(static_cast<double>(r.out.head_dim) * terms);
  if (!c2p && !p2c) {
    r.NoPosition("relative_attention without c2p or p2c: nothing relative");
    return;
  }
  const int64_t span = buckets > 0 ? buckets : reach;
  const int64_t heads = r.out.q_heads, dim = r.out.head_dim;
  const int64_t width = r.out.model_dim;
  const std::string at =
      fmt::format("deberta.encoder.layer.{}.attention.self.", r.out.layer);
  const NeededTensor rows = {"deberta.encoder.rel_embeddings.weight",
                             {2 * span, width},
                             "relative embeddings"};
  const auto linear = [&](const std::string& name, bool bias) {
    std::vector<NeededTensor> both = {
        {at + name + ".weight", {width, width}, "projection"}};
    if (bias) both.push_back({at + name + ".bias", {width}, "projection"});
    return both;
  };
  // v1: pos_proj has no bias; v2: a projection of its own, or the content's.
  const auto keys = linear(!v2      ? "pos_proj"
                           : shared ? "key_proj"
                                    : "pos_key_proj",
                           /*bias=*/v2);
  const auto queries = linear(!v2      ? "pos_q_proj"
                              : shared ? "query_proj"
                                       : "pos_query_proj",
                              /*bias=*/true);
  std::vector<NeededTensor> norms;
  if (norm.find("layer_norm") != std::string::npos) {
    norms = {{"deberta.encoder.LayerNorm.weight", {width}, "normalisation"},
             {"deberta.encoder.LayerNorm.bias", {width}, "normalisation"}};
  }
  const double epsilon = r.c.NumberOr("layer_norm_eps", 1e-7, 0.0, 1.0);
  Scheme& scheme = r.out.attention;
  scheme.name = "deberta";
  scheme.words = fmt::format(
      "DeBERTa {}{}{}, {}", c2p ? "c2p" : "", c2p && p2c ? " and " : "",
      p2c ? "p2c" : "",
      buckets > 0 ? fmt::format("{} buckets up to {}", 2 * buckets, reach)
                  : fmt::format("{} offsets, no buckets", 2 * reach));
  scheme.tensors = {rows};
  const auto need = [&](const std::vector<NeededTensor>& list) {
    scheme.tensors.insert(scheme.tensors.end(), list.begin(), list.end());
  };
  need(norms);
  if (c2p) need(keys);
  if (p2c) need(queries);
  scheme.build = [=](const TensorLookup& find) {
    Tensor table = find(rows);
    if (!norms.empty()) {
      table = LayerNorm(table, find(norms[0]), find(norms[1]), epsilon);
    }
    const auto project = [&](const std::vector<NeededTensor>& by) {
      return SplitHeads(
          Linear(table, find(by[0]), by.size() > 1 ? find(by[1]) : Tensor()),
          heads, dim);
    };
    return std::make_shared<locus::Deberta>(c2p ? project(keys) : Tensor(),
                                            p2c ? project(queries) : Tensor(),
                                            buckets, reach);
  };
}

void DebertaV1(Reader& r) { Deberta(r, /*v2=*/false); }
void DebertaV2(Reader& r) { Deberta(r, /*v2=*/true); }

}  // namespace

std::vector<Family> RelativeFamilies() {
  return {
      {{"Transformer-XL",
        {"transfo-xl"},
        "relative sinusoids, u and v",
        "offsets clamp at `clamp_len`; `same_length` is a window; causal only"},
       TransformerXl},
      {{"XLNet",
        {"xlnet"},
        "relative sinusoids, u and v, both directions",
        "offsets of both signs; segment terms are beside the position"},
       XlNet},
      {{"DeBERTa v1",
        {"deberta"},
        "c2p and p2c, one row an offset",
        "scale 1/sqrt(3d); `pos_att_type` is a text or a list; p2c's "
        "projection "
        "has a bias and c2p's has none"},
       DebertaV1},
      {{"DeBERTa v2, v3",
        {"deberta-v2"},
        "c2p and p2c, logarithmic buckets",
        "`share_att_key` reuses the content's projections; `norm_rel_ebd` "
        "normalises the table first"},
       DebertaV2},
  };
}

}  // namespace locus::models

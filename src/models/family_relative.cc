// Transformer-XL, XLNet and DeBERTa: tables of projected relative positions.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "locus/encodings/deberta.h"
#include "locus/encodings/shaw.h"
#include "models/families.h"
#include "models/project.h"
#include "models/relative_keys.h"

namespace locus::models {
namespace {

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
  const bool biased =
      r.out.model_type != "sew-d" && r.c.FlagOr("position_biased_input", true);
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
  const std::string stack = r.out.model_type == "sew-d"
                                ? "sew_d.encoder.encoder."
                                : "deberta.encoder.";
  const std::string at =
      fmt::format("{}layer.{}.attention.self.", stack, r.out.layer);
  const NeededTensor rows = {stack + "rel_embeddings.weight",
                             {2 * span, width},
                             "relative embeddings"};
  const auto linear = [&](const std::string& name, bool bias) {
    std::vector<NeededTensor> both = {
        {at + name + ".weight", {width, width}, "projection"}};
    if (bias) both.push_back({at + name + ".bias", {width}, "projection"});
    return both;
  };
  // v1: pos_proj, without bias; v2: a separate projection, or that of the
  // content.
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
    norms = {{stack + "LayerNorm.weight", {width}, "normalisation"},
             {stack + "LayerNorm.bias", {width}, "normalisation"}};
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

// DeBERTa v2 over audio frames; there is no table at the input.
void SewD(Reader& r) {
  for (const char* key : {"relative_attention", "share_att_key",
                          "position_buckets", "pos_att_type"}) {
    if (r.c.Absent(key)) Fail("{} is missing", r.c.Path(key));
  }
  r.Warn("positions count the frames that are left after squeezing");
  Deberta(r, /*v2=*/true);
}

// Key rows for distances n - m, -left .. right, in every layer.
void Wav2Vec2Bert(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const std::string kind =
      r.c.MaybeText("position_embeddings_type").value_or("relative_key");
  if (kind != "relative_key") {
    Fail("{} = '{}' is not read for wav2vec2-BERT; only relative_key is",
         r.c.Path("position_embeddings_type"), Printable(kind));
  }
  const int64_t left =
      r.c.IntOr("left_max_position_embeddings", 64, 0, 1 << 20);
  const int64_t right =
      r.c.IntOr("right_max_position_embeddings", 8, 0, 1 << 20);
  r.Ignore({"rotary_embedding_base", "max_source_positions"});
  const int64_t rows = left + right + 1, dim = r.out.head_dim;
  r.out.attention = TensorScheme(
      "shaw",
      fmt::format("q.E[n - m], clipped to {} keys back and {} ahead", left,
                  right),
      {.name =
           fmt::format("encoder.layers.{}.self_attn.distance_embedding.weight",
                       r.out.layer),
       .shape = {rows, dim},
       .use = "relative keys"},
      [=](const Tensor& table) {
        // Row m - n + right of the encoding is the model's row n - m + left.
        const std::vector<double> stored = table.ToVector();
        Tensor keys = Tensor::Zeros(DType::kF64, {rows, dim});
        double* to = keys.MutableData<double>();
        for (int64_t row = 0; row < rows; ++row) {
          std::copy_n(stored.begin() + (rows - 1 - row) * dim, dim,
                      to + row * dim);
        }
        return std::make_shared<Shaw>(keys, Tensor(), -right, left);
      });
}

}  // namespace

std::vector<Family> RelativeFamilies() {
  return {
      {{"wav2vec2-BERT",
        {"wav2vec2-bert"},
        "relative keys, clipped to 64 back and 8 ahead",
        "a table in every layer; distances are key minus query"},
       Wav2Vec2Bert},
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
        "c2p and p2c, one row per offset",
        "scale 1/sqrt(3d); `pos_att_type` is a string or a list; p2c's "
        "projection "
        "has a bias and c2p's has none"},
       DebertaV1},
      {{"DeBERTa v2, v3",
        {"deberta-v2"},
        "c2p and p2c, logarithmic buckets",
        "`share_att_key` reuses the content's projections; `norm_rel_ebd` "
        "normalises the table first"},
       DebertaV2},
      {{"SEW-D",
        {"sew-d"},
        "c2p and p2c, logarithmic buckets, over frames of sound",
        "as DeBERTa v2, without a table at the input"},
       SewD},
  };
}

}  // namespace locus::models

#include "models/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "models/byte_reader.h"
#include "models/config.h"

namespace locus::models {
namespace {

constexpr const char* kLongTable = "rope_factors_long.weight";

// The names of sizes in the config of a model type.
struct SizeNames {
  const char* width = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* layers = "num_hidden_layers";
  const char* length = "max_position_embeddings";
};

SizeNames NamesFor(const std::string& type) {
  if (type == "gpt2") {
    return {"n_embd", "n_head", nullptr, "n_layer", "n_positions"};
  }
  if (type == "mpt") {
    return {"d_model", "n_heads", nullptr, "n_layers", "max_seq_len"};
  }
  if (type == "bloom") {
    return {"hidden_size", "n_head", nullptr, "n_layer", "seq_length"};
  }
  SizeNames names;
  if (type == "falcon") names.kv_heads = "num_kv_heads";
  if (type == "gpt_neox" || type == "bert" || type == "nomic_bert" ||
      type == "baichuan") {
    names.kv_heads = nullptr;
  }
  return names;
}

class Translation {
 public:
  Translation(const Gguf& gguf, const GgufArch& arch)
      : gguf_(gguf), arch_(arch), prefix_(std::string(arch.name) + ".") {
    out_.arch = &arch;
  }

  // The fields of a config for the family that reads the architecture.
  GgufConfig OfFamily(int64_t layer) {
    const std::string type = arch_.text;
    const SizeNames names = NamesFor(type);
    out_.fields.root["model_type"] = type;
    Number("embedding_length", names.width);
    PerLayer("attention.head_count", names.heads, layer);
    const auto kv = PerLayer("attention.head_count_kv", names.kv_heads, layer);
    // In GGUF, an absent number never means a default of the model's own code.
    if (!kv && names.kv_heads != nullptr)
      out_.fields.root[names.kv_heads] = nullptr;
    Number("block_count", names.layers);
    Number("context_length", names.length);
    Widths(type, kv);
    Bases(type);
    Scaling(type, type == "deepseek_v3");
    Windows(type);
    Rest(type);
    return Finish();
  }

  // The numbers of an architecture that is read directly.
  GgufConfig OfLayer(int64_t layer) {
    Json& fields = out_.fields.root;
    fields["model_type"] = arch_.name;
    Number("embedding_length", "hidden_size");
    Number("context_length", "max_position_embeddings");
    const int64_t layers = CountLayers();
    fields["num_hidden_layers"] = layers;
    if (const GgufValue* causal = Find("attention.causal")) {
      const auto* flag = std::get_if<bool>(causal);
      if (flag == nullptr) Fail("{}attention.causal must be a flag", prefix_);
      out_.causal = *flag;
    }
    if (arch_.scheme == GgufScheme::kRecurrent) {
      out_.attends = false;
      return Finish();
    }
    if (layer < 0 || layer >= layers) return Finish();  // the reader fails
    HeadCounts(layer);
    Intervals(layer);
    WindowOf(layer, layers);
    Still(layer);
    LayerWidths();
    Number("attn_logit_softcapping", "attn_logit_softcapping");
    Scales();
    if (arch_.scheme == GgufScheme::kBuckets) {
      Number("attention.relative_buckets_count", "relative_buckets");
      Number("decoder_block_count", "decoder_layers");
    }
    if (arch_.scheme == GgufScheme::kAlibi) {
      Number("attention.max_alibi_bias", "alibi_bias_max");
    }
    if (arch_.scheme == GgufScheme::kRotary ||
        arch_.scheme == GgufScheme::kLatent) {
      LayerBase();
      Scaling("", arch_.mscale);
      if (out_.slides && !arch_.scaled) {
        fields.erase("rope_scaling");
        out_.attn_factor.reset();
      }
      if (arch_.sections) Number("rope.dimension_sections", "mrope_section");
    } else {
      // These have no effect if nothing rotates.
      for (const char* key : {"rope.dimension_count", "rope.freq_base"}) {
        Find(key);
      }
    }
    if (arch_.temperature) {
      Number("attention.temperature_scale", "temperature_scale");
      Copy("rope.scaling.original_context_length", "temperature_length",
           fields);
    }
    if (arch_.scheme == GgufScheme::kLatent) Indexer();
    out_.sinks = arch_.sinks &&
                 HasTensor(fmt::format("blk.{}.attn_sinks.weight", layer));
    return Finish();
  }

 private:
  GgufConfig Finish() {
    out_.layout = arch_.layout;
    out_.unused = Unused();
    return std::move(out_);
  }

  // Excludes layers that only predict further tokens.
  int64_t CountLayers() {
    const GgufValue* all = Find("block_count");
    const auto* count = all == nullptr ? nullptr : std::get_if<int64_t>(all);
    if (count == nullptr || *count < 1 || *count > kMostLayers) {
      Fail("{}block_count must be a whole number in 1 .. {}", prefix_,
           kMostLayers);
    }
    const GgufValue* extra = Find("nextn_predict_layers");
    const auto* further =
        extra == nullptr ? nullptr : std::get_if<int64_t>(extra);
    const int64_t rest = further == nullptr ? 0 : *further;
    if (rest < 0 || rest >= *count) {
      Fail("{}nextn_predict_layers = {} leaves no layers of {}", prefix_, rest,
           *count);
    }
    return *count - rest;
  }

  void HeadCounts(int64_t layer) {
    const auto heads = PerLayer("attention.head_count", nullptr, layer);
    const auto kv = PerLayer("attention.head_count_kv", nullptr, layer);
    if (!heads) Fail("{}attention.head_count is missing", prefix_);
    if (arch_.hybrid && arch_.interval == 0 &&
        (*heads == 0 || kv.value_or(*heads) == 0)) {
      out_.attends = false;
      return;
    }
    out_.fields.root["num_attention_heads"] = *heads;
    out_.fields.root["num_key_value_heads"] = kv.value_or(*heads);
  }

  // Layers with linear attention: by a flag per layer, or all but every n-th.
  void Intervals(int64_t layer) {
    if (arch_.interval == 0) return;
    if (const GgufValue* value = Find("attention.recurrent_layers")) {
      const auto* flags = std::get_if<std::vector<double>>(value);
      if (flags == nullptr || static_cast<size_t>(layer) >= flags->size()) {
        Fail("{}attention.recurrent_layers has no flag for layer {}", prefix_,
             layer);
      }
      out_.attends = (*flags)[static_cast<size_t>(layer)] == 0.0;
      return;
    }
    int64_t every = arch_.interval;
    if (const GgufValue* value = Find("full_attention_interval")) {
      const auto* given = std::get_if<int64_t>(value);
      if (given == nullptr || *given < 1) {
        Fail("{}full_attention_interval must be a whole number above 0",
             prefix_);
      }
      every = *given;
    }
    out_.attends = (layer + 1) % every == 0;
  }

  void WindowOf(int64_t layer, int64_t layers) {
    const char* key = "attention.sliding_window";
    const char* pattern = "attention.sliding_window_pattern";
    if (arch_.windows == GgufWindows::kNever) {
      Passes(key, 0.0);
      return;
    }
    int64_t width = arch_.window;
    if (const GgufValue* value = Find(key)) {
      const auto* given = std::get_if<int64_t>(value);
      if (given == nullptr || *given < 0 || *given > kMostLength) {
        Fail("{}{} must be a whole number in 0 .. {}", prefix_, key,
             kMostLength);
      }
      // Where llama.cpp fixes the width, the file only tells whether there is a
      // window.
      width = *given == 0 || !arch_.window_fixed ? *given : arch_.window;
    } else if (arch_.window_fixed && !arch_.chunks) {
      width = 0;
    }
    const bool elsewhere =
        arch_.only_layers != 0 && layers != arch_.only_layers;
    if (width == 0 || elsewhere) {
      Find(pattern);
      return;
    }
    out_.slides = Slides(pattern, layer);
    out_.windowed = true;
    if (out_.slides) out_.fields.root["sliding_window"] = width;
  }

  bool Slides(const char* pattern, int64_t layer) {
    if (arch_.windows == GgufWindows::kAll) return true;
    int64_t period = arch_.period;
    if (const GgufValue* value = Find(pattern)) {
      if (const auto* flags = std::get_if<std::vector<double>>(value)) {
        if (static_cast<size_t>(layer) >= flags->size()) {
          Fail("{}{} has no flag for layer {}", prefix_, pattern, layer);
        }
        return (*flags)[static_cast<size_t>(layer)] != 0.0;
      }
      const auto* every = std::get_if<int64_t>(value);
      if (every == nullptr || *every < 0) {
        Fail("{}{} must be a whole number or a list of flags", prefix_,
             pattern);
      }
      period = *every;
    } else if (arch_.windows == GgufWindows::kListed) {
      Fail("{}{} is missing: a flag for each layer", prefix_, pattern);
    }
    if (period == 0) return true;
    return layer % period != (arch_.full_first ? 0 : period - 1);
  }

  void Still(int64_t layer) {
    switch (arch_.still) {
      case GgufStill::kNone:
        return;
      case GgufStill::kFull: {
        const bool leads = arch_.still_leads_rotate &&
                           static_cast<double>(layer) <
                               Peek("leading_dense_block_count").value_or(0.0);
        out_.rotates = out_.slides || !out_.windowed || leads;
        return;
      }
      case GgufStill::kEveryFour:
        out_.rotates = (layer + 1) % 4 != 0;
        return;
      case GgufStill::kListed: {
        const GgufValue* value = Find("attention.rope_pattern");
        if (value == nullptr) return;
        const auto* flags = std::get_if<std::vector<double>>(value);
        if (flags == nullptr || static_cast<size_t>(layer) >= flags->size()) {
          Fail("{}attention.rope_pattern has no flag for layer {}", prefix_,
               layer);
        }
        out_.rotates = (*flags)[static_cast<size_t>(layer)] != 0.0;
        return;
      }
      case GgufStill::kSwitch: {
        const GgufValue* value = Find("rope.scaling.finetuned");
        const auto* on = value == nullptr ? nullptr : std::get_if<bool>(value);
        out_.rotates = on != nullptr && *on;
        return;
      }
    }
  }

  // An integer that is a width.
  std::optional<int64_t> Width(const char* key) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const auto* number = std::get_if<int64_t>(value);
    if (number == nullptr || *number < 1 || *number > kMostWidth) {
      Fail("{}{} must be a whole number in 1 .. {}", prefix_, key, kMostWidth);
    }
    return *number;
  }

  void LayerWidths() {
    Json& fields = out_.fields.root;
    auto head = Width("attention.key_length");
    auto value = Width("attention.value_length");
    const auto sliding = Width("attention.key_length_swa");
    const auto sliding_value = Width("attention.value_length_swa");
    auto rotary = Width("rope.dimension_count");
    const auto sliding_rotary = Width("rope.dimension_count_swa");
    if (arch_.scheme == GgufScheme::kLatent) {
      if (const auto mla = Width("attention.key_length_mla")) head = mla;
      if (const auto mla = Width("attention.value_length_mla")) value = mla;
    }
    if (out_.slides) {
      if (sliding) head = sliding;
      if (sliding_value) value = sliding_value;
      if (sliding_rotary) rotary = sliding_rotary;
    } else if (arch_.half_full && rotary) {
      rotary = *rotary / 2;
    }
    if (head) fields["head_dim"] = *head;
    if (value) fields["v_head_dim"] = *value;
    if (rotary) fields["rotary_dim"] = *rotary;
  }

  void LayerBase() {
    const auto base = Scalar("rope.freq_base");
    const auto sliding = Scalar("rope.freq_base_swa");
    constexpr double kUsual = 10000.0;
    out_.fields.root["rope_theta"] =
        !out_.slides
            ? base.value_or(kUsual)
            : sliding.value_or(arch_.own_base ? kUsual : base.value_or(kUsual));
  }

  void Scales() {
    if (arch_.scale == GgufScale::kKey) {
      const auto scale = Scalar("attention.scale");
      if (scale && *scale != 0.0) {
        out_.fields.root["attention_multiplier"] = *scale;
      }
    } else if (arch_.scale == GgufScale::kOutput) {
      out_.fields.root["attention_multiplier"] =
          Scalar("attention.output_scale").value_or(0.08838834764831845);
    }
  }

  void Indexer() {
    for (const char* key :
         {"attention.indexer.head_count", "attention.indexer.key_length",
          "attention.indexer.types"}) {
      Find(key);
    }
    const auto most = Scalar("attention.indexer.top_k");
    if (most && *most >= 1.0 && *most < 1e12) {
      out_.indexed = static_cast<int64_t>(*most);
    }
  }

  std::vector<std::string> Unused() const {
    std::vector<std::string> unused;
    for (const auto& [key, value] : gguf_.metadata) {
      if (!key.starts_with(prefix_) || used_.contains(key)) continue;
      const std::string_view rest =
          std::string_view(key).substr(prefix_.size());
      if (rest.starts_with("rope.") || rest.starts_with("attention.sliding") ||
          rest.starts_with("attention.scale") ||
          rest.starts_with("attention.max_alibi") ||
          rest.starts_with("attention.temperature") ||
          rest.starts_with("attention.chunk") ||
          rest.starts_with("attention.relative") ||
          rest.starts_with("attention.key_length") ||
          rest.starts_with("attention.value_length") ||
          rest.starts_with("attention.rope") ||
          rest.starts_with("attention.recurrent") ||
          rest.starts_with("attention.indexer") ||
          rest.starts_with("attention.compress") ||
          rest.starts_with("full_attention_interval") ||
          rest.starts_with("attn_logit") || rest.starts_with("position")) {
        unused.push_back(Printable(key));
      }
    }
    return unused;
  }

  const GgufValue* Find(const char* key) {
    const std::string full = prefix_ + key;
    used_.insert(full);
    const auto at = gguf_.metadata.find(full);
    return at == gguf_.metadata.end() ? nullptr : &at->second;
  }

  JsonTree AsJson(const char* key, const GgufValue& value) const {
    if (const auto* i = std::get_if<int64_t>(&value)) return JsonTree(*i);
    if (const auto* d = std::get_if<double>(&value)) {
      if (!std::isfinite(*d)) Fail("{}{} is not finite", prefix_, key);
      return JsonTree(*d);
    }
    if (const auto* b = std::get_if<bool>(&value)) return JsonTree(*b);
    if (const auto* s = std::get_if<std::string>(&value))
      return JsonTree(Printable(*s));
    if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      const bool whole = std::ranges::all_of(*list, [](double entry) {
        return std::abs(entry) <= 9007199254740992.0 &&  // 2^53
               entry == std::floor(entry);
      });
      if (whole)
        return JsonTree(std::vector<int64_t>(list->begin(), list->end()));
      return JsonTree(*list);
    }
    Fail("{}{} is a list that cannot be read", prefix_, key);
  }

  static void Put(Json& object, const char* to, JsonTree value) {
    object[to] = std::move(value.root);
  }

  // A number, without marking its key as read.
  std::optional<double> Peek(const char* key) const {
    const auto at = gguf_.metadata.find(prefix_ + key);
    if (at == gguf_.metadata.end()) return std::nullopt;
    if (const auto* i = std::get_if<int64_t>(&at->second)) {
      return static_cast<double>(*i);
    }
    const auto* d = std::get_if<double>(&at->second);
    return d == nullptr ? std::nullopt : std::optional(*d);
  }

  // Marks a key that has no effect here as read if it has the expected value;
  // with any other value it remains unread.
  void Passes(const char* key, std::optional<double> value) {
    if (value && Peek(key) == value) Find(key);
  }

  // A finite number.
  std::optional<double> Scalar(const char* key) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const JsonTree number = AsJson(key, *value);
    if (!number.root.is_number()) Fail("{}{} must be a number", prefix_, key);
    return number.root.get<double>();
  }

  void Copy(const char* key, const char* to, Json& object) {
    if (const GgufValue* value = Find(key)) {
      Put(object, to, AsJson(key, *value));
    }
  }

  bool HasTensor(std::string_view name) const {
    return std::ranges::any_of(gguf_.tensors, [&](const TensorEntry& tensor) {
      return tensor.name == name;
    });
  }

  // Copies a value under another name; if `to` is null, only marks it as read.
  bool Number(const char* key, const char* to) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return false;
    if (to != nullptr) Put(out_.fields.root, to, AsJson(key, *value));
    return true;
  }

  // A number, or a list with one per layer.
  std::optional<int64_t> PerLayer(const char* key, const char* to,
                                  int64_t layer) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return std::nullopt;
    std::optional<int64_t> number;
    if (const auto* list = std::get_if<std::vector<double>>(value)) {
      if (layer >= 0 && static_cast<size_t>(layer) < list->size()) {
        const double entry = (*list)[static_cast<size_t>(layer)];
        if (entry >= 0.0 && entry <= 1e6) {
          number = static_cast<int64_t>(entry);
        }
      }
    } else if (const auto* one = std::get_if<int64_t>(value)) {
      number = *one;
    }
    if (!number) Fail("{}{} is no count for layer {}", prefix_, key, layer);
    if (to != nullptr) out_.fields.root[to] = *number;
    return number;
  }

  void Widths(const std::string& type, std::optional<int64_t> kv) {
    const auto integer = [&](const char* key) -> std::optional<int64_t> {
      const GgufValue* value = Find(key);
      if (value == nullptr) return std::nullopt;
      const auto* number = std::get_if<int64_t>(value);
      if (number == nullptr || *number < 1 || *number > kMostWidth) {
        Fail("{}{} must be a whole number in 1 .. {}", prefix_, key,
             kMostWidth);
      }
      return *number;
    };
    auto head = integer("attention.key_length");
    auto value_head = integer("attention.value_length");
    // Latent attention has separate keys for the widths of its heads.
    if (const auto mla = integer("attention.key_length_mla")) head = mla;
    if (const auto mla = integer("attention.value_length_mla")) {
      value_head = mla;
    }
    const auto rotary = integer("rope.dimension_count");
    if (type == "deepseek_v3") {
      if (!head || !rotary || *rotary >= *head) {
        Fail("{}attention.key_length and rope.dimension_count are needed",
             prefix_);
      }
      out_.fields.root["qk_nope_head_dim"] = *head - *rotary;
      out_.fields.root["qk_rope_head_dim"] = *rotary;
      out_.fields.root["v_head_dim"] = value_head.value_or(*head - *rotary);
      if (kv) out_.fields.root.erase("num_key_value_heads");
      return;
    }
    const auto known = [&](const char* key) {
      const auto at = out_.fields.root.find(key);
      return at != out_.fields.root.end() && at->is_number_integer()
                 ? at->get<int64_t>()
                 : int64_t{0};
    };
    const int64_t width = known("hidden_size");
    const int64_t heads = known("num_attention_heads");
    const int64_t size = head                     ? *head
                         : heads > 0 && width > 0 ? width / heads
                                                  : int64_t{0};
    if (type != "gpt2" && type != "mpt" && type != "bloom" && type != "bert" &&
        type != "falcon" && type != "gpt_neox" && type != "baichuan") {
      out_.fields.root["head_dim"] = head ? Json(*head) : Json(nullptr);
    }
    if (!rotary || size == 0 || *rotary == size) return;
    if (*rotary > size) {
      Fail("{}rope.dimension_count = {} is more than a head of {}", prefix_,
           *rotary, size);
    }
    // The share from which truncation recovers this number.
    const double share =
        (static_cast<double>(*rotary) + 0.25) / static_cast<double>(size);
    out_.fields
        .root[type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor"] =
        share;
  }

  void Bases(const std::string& type) {
    Number("rope.freq_base",
           type == "gpt_neox" ? "rotary_emb_base" : "rope_theta");
    if (type == "gemma3_text") {
      Number("rope.freq_base_swa", "rope_local_base_freq");
    } else {
      // A separate base for sliding layers is read nowhere else.
      Passes("rope.freq_base_swa", Peek("rope.freq_base"));
    }
  }

  // `magnified`: YaRN's magnitude is part of the softmax scale.
  void Scaling(const std::string& type, bool magnified) {
    const std::string kind = ScalingKind();
    JsonTree tree(Json::object());
    Json& scaling = tree.root;
    const double factor = Factor(kind);
    const bool yarn = kind == "yarn";
    if (yarn) {
      Copy("rope.scaling.original_context_length",
           "original_max_position_embeddings", scaling);
      Copy("rope.scaling.yarn_beta_fast", "beta_fast", scaling);
      Copy("rope.scaling.yarn_beta_slow", "beta_slow", scaling);
    }
    if (magnified && yarn) {
      // The file has a tenth of mscale_all_dim.
      if (const auto tenth = Scalar("rope.scaling.yarn_log_multiplier")) {
        scaling["mscale"] = scaling["mscale_all_dim"] = *tenth * 10.0;
      }
    } else {
      Passes("rope.scaling.yarn_log_multiplier", 0.0);
    }
    Gain(magnified, yarn, factor, scaling);
    OriginalLength(yarn);
    Finetuned(type);
    if (yarn || factor != 1.0) {
      scaling["rope_type"] = yarn ? "yarn" : "linear";
      scaling["factor"] = factor;
      // gpt-oss does not round the ends of the blend, which GGUF does not
      // record.
      if (type == "gpt_oss") scaling["truncate"] = false;
      out_.fields.root["rope_scaling"] = std::move(scaling);
    }
  }

  // llama.cpp defaults to linear scaling.
  std::string ScalingKind() {
    const char* key = "rope.scaling.type";
    const GgufValue* value = Find(key);
    if (value == nullptr) return "linear";
    const auto* kind = std::get_if<std::string>(value);
    if (kind == nullptr) Fail("{}{} must be a string", prefix_, key);
    if (*kind == "longrope" && !HasTensor(kLongTable)) {
      Fail("{}{} = 'longrope' needs the tensor {}", prefix_, key, kLongTable);
    }
    for (const char* known : {"none", "linear", "yarn", "longrope"}) {
      if (*kind == known) return *kind;
    }
    Fail(
        "{}{} = '{}' is not a known scaling; known values: none, linear, yarn, "
        "longrope",
        prefix_, key, Printable(*kind));
  }

  // The divisor of positions; 0 stands for 1.
  double Factor(const std::string& kind) {
    const char* key = "rope.scaling.factor";
    const char* old_key = "rope.scale_linear";
    if (kind == "none") {
      for (const char* each : {key, old_key}) {
        Passes(each, 0.0);
        Passes(each, 1.0);
      }
      return 1.0;
    }
    auto factor = Scalar(key);
    if (factor) {
      Passes(old_key, factor);
    } else {
      factor = Scalar(old_key);
    }
    return factor && *factor != 0.0 ? *factor : 1.0;
  }

  // The factor of cos and sin, besides YaRN's own 1 + 0.1 ln(factor).
  void Gain(bool magnified, bool yarn, double factor, Json& scaling) {
    const char* key = "rope.scaling.attn_factor";
    if (magnified) {
      // It would affect the softmax scale as well.
      Passes(key, 1.0);
      return;
    }
    const auto gain = Scalar(key);
    if (!gain) return;
    if (!(*gain > 0.0)) {
      Fail("{}{} must be above 0, got {}", prefix_, key, *gain);
    }
    if (yarn) {
      const double own = factor > 1.0 ? 1.0 + 0.1 * std::log(factor) : 1.0;
      scaling["attention_factor"] = *gain * own;
    } else {
      out_.attn_factor = gain;
    }
  }

  // The original length, which YaRN's blend and LongRoPE's two tables depend
  // on; no effect elsewhere.
  void OriginalLength(bool yarn) {
    const char* key = "rope.scaling.original_context_length";
    if (yarn) return;
    if (!HasTensor(kLongTable)) {
      Passes(key, Peek("context_length"));
      return;
    }
    const auto length = Scalar(key);
    if (!length) return;
    if (!(*length >= 2.0 && *length <= static_cast<double>(kMostLength))) {
      Fail("{}{} must lie in 2 .. {}, got {}", prefix_, key, kMostLength,
           *length);
    }
    out_.original_length = static_cast<int64_t>(*length);
  }

  // Granite's switch for rotation; only informational elsewhere.
  void Finetuned(const std::string& type) {
    const char* key = "rope.scaling.finetuned";
    const GgufValue* value = Find(key);
    if (value == nullptr || type != "granite") return;
    const auto* on = std::get_if<bool>(value);
    if (on == nullptr || !*on) {
      Fail("{}{} must be true: without it nothing rotates, which is not read",
           prefix_, key);
    }
  }

  void Windows(const std::string& type) {
    const char* key = "attention.sliding_window";
    const bool always = type == "phi3" || type == "starcoder2";
    const bool by_layer = type == "gemma2" || type == "gemma3_text" ||
                          type == "cohere2" || type == "gpt_oss";
    if (by_layer || (always && Peek(key) != 0.0)) {
      Number(key, "sliding_window");
    } else {
      Passes(key, 0.0);  // no window, as in Phi-4
    }
    if (by_layer) Pattern();
    if (type == "gemma2" || type == "gemma3_text") {
      Number("attn_logit_softcapping", "attn_logit_softcapping");
    }
    Number("attention.causal", "is_causal");
  }

  // Which layers use a window: all but every n-th, or by a flag per layer.
  void Pattern() {
    const char* key = "attention.sliding_window_pattern";
    const GgufValue* value = Find(key);
    if (value == nullptr) return;
    if (const auto* flags = std::get_if<std::vector<double>>(value)) {
      JsonTree tree(Json::array());
      Json& types = tree.root;
      for (const double flag : *flags) {
        types.push_back(flag != 0.0 ? "sliding_attention" : "full_attention");
      }
      out_.fields.root["layer_types"] = std::move(types);
    } else if (const auto* every = std::get_if<int64_t>(value)) {
      out_.fields.root["sliding_window_pattern"] = *every;
    } else {
      Fail("{}{} must be a whole number or a list of flags", prefix_, key);
    }
  }

  void Rest(const std::string& type) {
    if (type == "granite") Number("attention.scale", "attention_multiplier");
    if (type == "mpt") {
      JsonTree tree(Json::object());
      Json& attention = tree.root;
      if (const GgufValue* most = Find("attention.max_alibi_bias")) {
        JsonTree bias = AsJson("attention.max_alibi_bias", *most);
        const bool alibi =
            bias.root.is_number() && bias.root.get<double>() > 0.0;
        attention["alibi"] = alibi;
        if (alibi) Put(attention, "alibi_bias_max", std::move(bias));
      }
      out_.fields.root["attn_config"] = std::move(attention);
    }
    if (type == "falcon") {
      out_.fields.root["new_decoder_architecture"] =
          true;  // any number of key heads
      out_.fields.root["alibi"] = false;
    }
  }

  const Gguf& gguf_;
  const GgufArch& arch_;
  std::string prefix_;
  GgufConfig out_ = {.fields = JsonTree(Json::object())};
  std::set<std::string> used_;
};

const GgufArch& FindArch(const Gguf& gguf) {
  const auto at = gguf.metadata.find("general.architecture");
  const auto* name = at == gguf.metadata.end()
                         ? nullptr
                         : std::get_if<std::string>(&at->second);
  if (name == nullptr) Fail("general.architecture is missing");
  for (const GgufArch& arch : GgufArchs()) {
    if (*name != arch.name) continue;
    if (arch.scheme != GgufScheme::kRefused) return arch;
    Fail("the GGUF architecture '{}' is not read: {}", Printable(*name),
         arch.text);
  }
  Fail(
      "the GGUF architecture '{}' is not known; it needs a pair layout, a "
      "scale and which layers have which positions",
      Printable(*name));
}

}  // namespace

GgufConfig ToConfig(const Gguf& gguf, int64_t layer) {
  const GgufArch& arch = FindArch(gguf);
  Translation translation(gguf, arch);
  return arch.scheme == GgufScheme::kFamily ? translation.OfFamily(layer)
                                            : translation.OfLayer(layer);
}

}  // namespace locus::models

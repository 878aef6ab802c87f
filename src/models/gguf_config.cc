#include "models/gguf_config.h"

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "models/byte_reader.h"
#include "models/config.h"

namespace locus::models {
namespace {

constexpr auto kPairs = PairLayout::kInterleaved;
constexpr auto kHalves = PairLayout::kHalves;

// An architecture of GGUF: the model_type whose reader serves it, and how its
// weights are laid out in such files.
struct Arch {
  const char* name;
  const char* model_type;
  PairLayout layout;
};
constexpr std::array kArchs = {
    Arch{"llama", "llama", kPairs},
    Arch{"baichuan", "baichuan", kPairs},
    Arch{"falcon", "falcon", kHalves},
    Arch{"gptneox", "gpt_neox", kHalves},
    Arch{"stablelm", "stablelm", kHalves},
    Arch{"qwen2", "qwen2", kHalves},
    Arch{"qwen2moe", "qwen2_moe", kHalves},
    Arch{"qwen3", "qwen3", kHalves},
    Arch{"qwen3moe", "qwen3_moe", kHalves},
    Arch{"gemma", "gemma", kHalves},
    Arch{"gemma2", "gemma2", kHalves},
    Arch{"gemma3", "gemma3_text", kHalves},
    Arch{"phi2", "phi", kHalves},
    Arch{"phi3", "phi3", kHalves},
    Arch{"olmo", "olmo", kPairs},
    Arch{"olmo2", "olmo2", kHalves},
    Arch{"starcoder2", "starcoder2", kHalves},
    Arch{"command-r", "cohere", kPairs},
    Arch{"cohere2", "cohere2", kPairs},
    Arch{"glm4", "glm4", kPairs},
    Arch{"granite", "granite", kPairs},
    Arch{"smollm3", "smollm3", kPairs},
    Arch{"gpt-oss", "gpt_oss", kHalves},
    Arch{"deepseek2", "deepseek_v3", kPairs},
    Arch{"bloom", "bloom", kHalves},
    Arch{"mpt", "mpt", kHalves},
    Arch{"gpt2", "gpt2", kHalves},
    Arch{"bert", "bert", kHalves},
    Arch{"nomic-bert", "nomic_bert", kHalves},
};

// Sizes under the names that a model_type's config has for them.
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
  Translation(const Gguf& gguf, const Arch& arch)
      : gguf_(gguf), arch_(arch), prefix_(std::string(arch.name) + ".") {}

  Json Config(int64_t layer) {
    const std::string type = arch_.model_type;
    const SizeNames names = NamesFor(type);
    config_["model_type"] = type;
    Number("embedding_length", names.width);
    PerLayer("attention.head_count", names.heads, layer);
    const auto kv = PerLayer("attention.head_count_kv", names.kv_heads, layer);
    // Here an absent number never means a default of the model's own code.
    if (!kv && names.kv_heads != nullptr) config_[names.kv_heads] = nullptr;
    Number("block_count", names.layers);
    Number("context_length", names.length);
    Widths(type, kv);
    Frequencies(type);
    Windows(type);
    Rest(type);
    return config_;
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
          rest.starts_with("attn_logit") || rest.starts_with("position")) {
        unused.push_back(Printable(key));
      }
    }
    return unused;
  }

 private:
  const GgufValue* Find(const char* key) {
    const std::string full = prefix_ + key;
    used_.insert(full);
    const auto at = gguf_.metadata.find(full);
    return at == gguf_.metadata.end() ? nullptr : &at->second;
  }

  Json AsJson(const char* key, const GgufValue& value) const {
    if (const auto* i = std::get_if<int64_t>(&value)) return *i;
    if (const auto* d = std::get_if<double>(&value)) {
      if (!std::isfinite(*d)) Fail("{}{} is not finite", prefix_, key);
      return *d;
    }
    if (const auto* b = std::get_if<bool>(&value)) return *b;
    if (const auto* s = std::get_if<std::string>(&value)) return Printable(*s);
    if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      return *list;
    }
    Fail("{}{} is a list that cannot be read", prefix_, key);
  }

  // Copies a value under another name; `to` null: only marks it as used.
  bool Number(const char* key, const char* to) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return false;
    if (to != nullptr) config_[to] = AsJson(key, *value);
    return true;
  }

  // A number, or a list with one for each layer.
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
    if (to != nullptr) config_[to] = *number;
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
    // Latent attention names the widths of its heads anew.
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
      config_["qk_nope_head_dim"] = *head - *rotary;
      config_["qk_rope_head_dim"] = *rotary;
      config_["v_head_dim"] = value_head.value_or(*head - *rotary);
      if (kv) config_.erase("num_key_value_heads");
      return;
    }
    const auto known = [&](const char* key) {
      const auto at = config_.find(key);
      return at != config_.end() && at->is_number_integer() ? at->get<int64_t>()
                                                            : int64_t{0};
    };
    const int64_t width = known("hidden_size");
    const int64_t heads = known("num_attention_heads");
    const int64_t size = head                     ? *head
                         : heads > 0 && width > 0 ? width / heads
                                                  : int64_t{0};
    if (type != "gpt2" && type != "mpt" && type != "bloom" && type != "bert" &&
        type != "falcon" && type != "gpt_neox" && type != "baichuan") {
      config_["head_dim"] = head ? Json(*head) : Json(nullptr);
    }
    if (!rotary || size == 0 || *rotary == size) return;
    if (*rotary > size) {
      Fail("{}rope.dimension_count = {} is more than a head of {}", prefix_,
           *rotary, size);
    }
    // The share that truncation turns back into this number.
    const double share =
        (static_cast<double>(*rotary) + 0.25) / static_cast<double>(size);
    config_[type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor"] =
        share;
  }

  void Frequencies(const std::string& type) {
    Number("rope.freq_base",
           type == "gpt_neox" ? "rotary_emb_base" : "rope_theta");
    Number("rope.freq_base_swa",
           type == "gemma3_text" ? "rope_local_base_freq" : nullptr);
    Json scaling = Json::object();
    const GgufValue* kind = Find("rope.scaling.type");
    const std::string name =
        kind != nullptr && std::holds_alternative<std::string>(*kind)
            ? std::get<std::string>(*kind)
            : "none";
    const auto copy = [&](const char* key, const char* to) {
      const GgufValue* value = Find(key);
      if (value != nullptr && name != "none") scaling[to] = AsJson(key, *value);
    };
    copy("rope.scaling.factor", "factor");
    copy("rope.scaling.original_context_length",
         "original_max_position_embeddings");
    copy("rope.scaling.yarn_beta_fast", "beta_fast");
    copy("rope.scaling.yarn_beta_slow", "beta_slow");
    copy("rope.scaling.attn_factor", "attention_factor");
    // A tenth of DeepSeek's mscale_all_dim.
    if (const GgufValue* value = Find("rope.scaling.yarn_log_multiplier")) {
      const Json number = AsJson("rope.scaling.yarn_log_multiplier", *value);
      if (!number.is_number()) {
        Fail("{}rope.scaling.yarn_log_multiplier must be a number", prefix_);
      }
      scaling["mscale"] = number.get<double>() * 10.0;
      scaling["mscale_all_dim"] = number.get<double>() * 10.0;
    }
    if (name == "none") return;
    scaling["rope_type"] = Printable(name);
    // gpt-oss leaves the ends of the blend unrounded, and GGUF does not say so.
    if (type == "gpt_oss") scaling["truncate"] = false;
    config_["rope_scaling"] = scaling;
  }

  void Windows(const std::string& type) {
    const bool slides = type == "gemma2" || type == "gemma3_text" ||
                        type == "cohere2" || type == "gpt_oss" ||
                        type == "phi3" || type == "starcoder2";
    if (slides) {
      Number("attention.sliding_window", "sliding_window");
      Pattern();
    }
    Number("attn_logit_softcapping", type == "gemma2" || type == "gemma3_text"
                                         ? "attn_logit_softcapping"
                                         : nullptr);
  }

  // Which layers slide: every layer but each n-th, or a flag for each.
  void Pattern() {
    const char* key = "attention.sliding_window_pattern";
    const GgufValue* value = Find(key);
    if (value == nullptr) return;
    if (const auto* flags = std::get_if<std::vector<double>>(value)) {
      Json types = Json::array();
      for (const double flag : *flags) {
        types.push_back(flag != 0.0 ? "sliding_attention" : "full_attention");
      }
      config_["layer_types"] = types;
    } else if (const auto* every = std::get_if<int64_t>(value)) {
      config_["sliding_window_pattern"] = *every;
    } else {
      Fail("{}{} must be a whole number or a list of flags", prefix_, key);
    }
  }

  void Rest(const std::string& type) {
    if (type == "granite") Number("attention.scale", "attention_multiplier");
    if (type == "mpt") {
      Json attention = Json::object();
      if (const GgufValue* most = Find("attention.max_alibi_bias")) {
        const Json bias = AsJson("attention.max_alibi_bias", *most);
        attention["alibi"] = bias.is_number() && bias.get<double>() > 0.0;
        if (attention["alibi"].get<bool>()) attention["alibi_bias_max"] = bias;
      }
      config_["attn_config"] = attention;
    }
    if (type == "falcon") {
      config_["new_decoder_architecture"] = true;  // any number of key heads
      config_["alibi"] = false;
    }
  }

  const Gguf& gguf_;
  const Arch& arch_;
  std::string prefix_;
  Json config_ = Json::object();
  std::set<std::string> used_;
};

const Arch& FindArch(const Gguf& gguf) {
  const auto at = gguf.metadata.find("general.architecture");
  const auto* name = at == gguf.metadata.end()
                         ? nullptr
                         : std::get_if<std::string>(&at->second);
  if (name == nullptr) Fail("general.architecture is missing");
  for (const Arch& arch : kArchs) {
    if (*name == arch.name) return arch;
  }
  Fail(
      "the GGUF architecture '{}' is not known; it needs a pair layout and a "
      "family",
      Printable(*name));
}

}  // namespace

GgufConfig ToConfig(const Gguf& gguf, int64_t layer) {
  const Arch& arch = FindArch(gguf);
  Translation translation(gguf, arch);
  GgufConfig config;
  config.fields = translation.Config(layer);
  config.layout = arch.layout;
  config.unused = translation.Unused();
  return config;
}

}  // namespace locus::models

// FromConfig: parses, finds the family, lets it read, and checks for unused
// keys.
#include <utility>

#include "locus/text.h"
#include "models/class_defaults.h"
#include "models/families.h"
#include "models/layer_source.h"

namespace locus::models {
namespace {

// Configs of several models have the text model in an object of its own. Its
// type may be missing, or be that of the whole.
constexpr const char* kTextKeys[] = {"text_config", "llm_config"};

// Models with several configs but no text model under those names, and the key
// of the config that is read by default.
struct Composite {
  std::string_view model_type;
  const char* key;
};
constexpr Composite kComposites[] = {
    {"blt", "global_config"},
    {"canary", "decoder_config"},
    {"colmodernvbert", "vlm_config"},
    {"colpali", "vlm_config"},
    {"colqwen2", "vlm_config"},
    {"deepseek_ocr2_vision", "encoder_config"},
    {"depth_anything", "backbone_config"},
    {"depth_pro", "image_model_config"},
    {"dia", "decoder_config"},
    {"edgetam", "vision_config"},
    {"encoder-decoder", "decoder"},
    {"fastspeech2_conformer_with_hifigan", "model_config"},
    {"granite_speech5_ctc", "encoder_config"},
    {"higgs_audio_v2_tokenizer", "semantic_model_config"},
    {"lasr_ctc", "encoder_config"},
    {"musicgen", "decoder"},
    {"musicgen_melody", "decoder"},
    {"nemotron3_5_asr", "encoder_config"},
    {"nemotron3_5_transcribe_audio", "asr_config"},
    {"nemotron3_diarization", "audio_config"},
    {"nemotron_asr_streaming", "encoder_config"},
    {"parakeet_ctc", "encoder_config"},
    {"parakeet_rnnt", "encoder_config"},
    {"parakeet_tdt", "encoder_config"},
    {"pi0", "vlm_config"},
    {"prompt_depth_anything", "backbone_config"},
    {"qwen2_5_omni", "thinker_config"},
    {"qwen2_5_omni_token2wav", "dit_config"},
    {"qwen3_omni_moe", "thinker_config"},
    {"rag", "generator"},
    {"sam", "vision_config"},
    {"sam2", "vision_config"},
    {"sam2_vision_model", "backbone_config"},
    {"sam3_tracker", "vision_config"},
    {"sam3_vision_model", "backbone_config"},
    {"sam_hq", "vision_config"},
    {"slanext", "vision_config"},
    {"speech-encoder-decoder", "decoder"},
    {"t5gemma", "decoder"},
    {"t5gemma2", "decoder"},
    {"tipsv2_dpt", "backbone_config"},
    {"unlimited_ocr_vision", "encoder_config"},
    {"vision-encoder-decoder", "decoder"},
    {"vitmatte", "backbone_config"},
    {"vitpose", "backbone_config"},
    {"xcodec", "semantic_model_config"},
};

struct Root {
  const Json* object;
  std::string name;
  std::string model_type;
  const Json* beside = nullptr;  // the object's parent, if it has one
  bool other_part = false;  // whether there is also, for example, an encoder
};

std::string TypeOf(const Json& object) {
  const auto at = object.find("model_type");
  if (at == object.end() || at->is_null()) return {};
  if (!at->is_string()) Fail("model_type must be a string, got {}", Shown(*at));
  return at->get<std::string>();
}

// The config under `key`; its type defaults to that of the whole.
Root Below(const Root& whole, const std::string& key) {
  const auto at = whole.object->find(key);
  if (at == whole.object->end() || !at->is_object()) {
    Fail("{} must be an object: a config of {}", Printable(whole.name + key),
         Printable(whole.model_type));
  }
  const std::string inner = TypeOf(*at);
  return {&*at, whole.name + key + ".",
          inner.empty() ? whole.model_type : inner, whole.object};
}

bool IsConfig(const Json& json, const std::string& key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_object();
}

// Descends from `root` to the model that is read. If `part` is the key of a
// config on the way, descends into it and clears `part`.
Root FindModel(Root root, std::string& part) {
  constexpr int kDeepest = 4;
  for (int depth = 0; depth < kDeepest; ++depth) {
    const Json& json = *root.object;
    std::string key;
    bool other_part = false;
    const bool named = part.ends_with("_config") && IsConfig(json, part);
    if (named) {
      key = std::exchange(part, "");
    } else {
      for (const char* text : kTextKeys) {
        if (key.empty() && IsConfig(json, text)) key = text;
      }
      for (const Composite& composite : kComposites) {
        if (composite.model_type != root.model_type || !key.empty()) continue;
        key = composite.key;
        // "encoder" and "decoder", or "encoder_config" and "decoder_config".
        if (!key.starts_with("decoder")) continue;
        const std::string ending = key.substr(std::string("decoder").size());
        other_part = IsConfig(json, "encoder" + ending);
        if (other_part && part == "encoder") key = "encoder" + ending;
      }
    }
    if (key.empty()) break;
    root = Below(root, key);
    root.other_part = other_part;
    if (named) break;
  }
  return root;
}

Root FindRoot(const Json& json, std::string& part) {
  Root root = FindModel({&json, "", TypeOf(json)}, part);
  if (root.model_type.empty()) {
    Fail("model_type is missing: it says which model's code is meant");
  }
  return root;
}

// Number of values below a key, counting at most `most`.
size_t CountValues(const Json& json, size_t most) {
  size_t count = 0;
  if (!json.is_structured()) return count;
  for (const Json& value : json) {
    count += 1 + CountValues(value, most - count);
    if (count >= most) return most;
  }
  return count;
}

// One model of a config, ready to be read layer by layer.
class Model {
 public:
  Model(const Json& json, std::string part)
      : root_(FindRoot(json, part)),
        rest_(part),
        family_(FindFamily(root_.model_type)),
        filled_(
            family_.class_defaults
                ? WithClassDefaults(*root_.object, root_.model_type, root_.name)
                : Json()),
        keys_(PositionKeys(Object())) {
    // Every layer searches these: more would only cost time.
    constexpr size_t kMostValues = 1 << 16;
    for (const std::string& key : keys_) {
      if (CountValues(Object().at(key), kMostValues) >= kMostValues) {
        Fail("{} has {} values or more, which cannot be right",
             Printable(root_.name + key), kMostValues);
      }
    }
  }

  LayerPosition Read(const ReadOptions& asked) const {
    ReadOptions options = asked;
    options.part = root_.other_part ? std::string() : rest_;
    LayerPosition out;
    out.model_type = root_.model_type;
    out.family = family_.info.name;
    out.part = "decoder";
    out.layer = options.layer;
    const Config config(Object(), root_.name, keys_);
    Reader reader(config, options, out);
    reader.DualChunks();
    family_.read(reader);
    reader.Causality(root_.beside);
    if (!options.part.empty() && options.part != out.part) {
      Fail("{} has no part '{}'", out.model_type, Printable(options.part));
    }
    const auto unused = config.Unused();
    if (!unused.empty()) {
      reader.Refuse(
          "{} {} neither used by {} nor known to be harmless to positions",
          Listed(unused), unused.size() == 1 ? "is" : "are", out.family);
    }
    if (root_.other_part) {
      out.part = asked.part == "encoder" ? "encoder" : "decoder";
      out.other_part = true;
    } else if (asked.part != rest_) {
      out.part = asked.part;
    }
    return out;
  }

 private:
  const Json& Object() const {
    return family_.class_defaults ? filled_ : *root_.object;
  }

  Root root_;
  std::string rest_;  // the rest of the requested part, below root_
  const Family& family_;
  Json filled_;  // with the class's defaults, if the family wants them
  std::vector<std::string> keys_;
};

class ParsedConfig final : public LayerSource {
 public:
  explicit ParsedConfig(JsonTree json)
      : json_(std::move(json)), model_(json_.root, "") {}

  LayerPosition Read(const ReadOptions& options) const override {
    // Parts of one model are read by the same family; those of several configs
    // by different ones.
    if (options.part.empty()) return model_.Read(options);
    return Model(json_.root, options.part).Read(options);
  }

 private:
  JsonTree json_;
  Model model_;
};

}  // namespace

std::unique_ptr<LayerSource> ConfigSource(JsonTree json) {
  return std::make_unique<ParsedConfig>(std::move(json));
}

LayerPosition FromConfig(std::string_view text, const ReadOptions& options) {
  return ModelConfig::Parse(text).Layer(options);
}

LayerPosition FromConfig(std::string_view json, int64_t layer) {
  return FromConfig(json, ReadOptions{.layer = layer});
}

LayerPosition FromConfigFile(const std::string& path,
                             const ReadOptions& options) {
  return ModelConfig::Open(path).Layer(options);
}

std::shared_ptr<const Encoding> Build(const Scheme& scheme,
                                      const TensorLookup& tensors) {
  if (scheme.encoding) return scheme.encoding;
  if (!scheme.build) return nullptr;
  if (!tensors) {
    Fail("{} positions need the tensor '{}' of the checkpoint", scheme.name,
         scheme.tensors.empty() ? "?" : scheme.tensors.front().name);
  }
  return scheme.build(tensors);
}

}  // namespace locus::models

// FromGguf: converts GGUF metadata to the fields of a config, which the
// family's own reader reads.
//
// The pair layout depends on the file rather than the config: conversion to
// GGUF permutes the q and k weights of LLaMA and similar models to interleaved
// pairs.
#include <algorithm>

#include "models/families.h"
#include "models/gguf_config.h"
#include "models/gguf_layer.h"
#include "models/layer_source.h"
#include "models/mapped_file.h"

namespace locus::models {
namespace {

// Divisors of the frequencies, precomputed by the conversion: llama3 scaling
// (rope_freqs), LongRoPE (rope_factors_short and rope_factors_long).
struct Tables {
  std::vector<double> both, shorter, longer;

  bool Empty() const { return both.empty() && shorter.empty(); }
};

Tables ReadTables(const Checkpoint& file, int64_t pairs) {
  const auto read = [&](const char* name) -> std::vector<double> {
    if (file.Find(name) == nullptr) return {};
    const Tensor tensor = file.Get(name);
    if (tensor.NumElements() != pairs) {
      Fail("tensor '{}' must have {} numbers, one a pair, and has {}", name,
           pairs, tensor.NumElements());
    }
    return tensor.ToVector();
  };
  Tables tables{read("rope_freqs.weight"), read("rope_factors_short.weight"),
                read("rope_factors_long.weight")};
  if (tables.shorter.empty() != tables.longer.empty()) {
    Fail(
        "of the tensors rope_factors_short.weight and rope_factors_long.weight "
        "there is only one");
  }
  return tables;
}

// LongRoPE from the file's tables, with llama.cpp's defaults for what the
// metadata omits.
LongRopeScaling TwoTables(const Tables& tables, const GgufConfig& config,
                          LayerPosition& out) {
  LongRopeScaling scaling;
  scaling.short_factor = tables.shorter;
  scaling.long_factor = tables.longer;
  scaling.original_length =
      config.original_length != 0 ? config.original_length : out.trained_length;
  scaling.factor = static_cast<double>(out.trained_length) /
                   static_cast<double>(scaling.original_length);
  if (!config.attn_factor && scaling.factor > 1.0) {
    out.warnings.push_back(
        "rope.scaling.attn_factor is absent, for which llama.cpp takes 1");
  }
  RotaryFacts& facts = *out.rotary;
  facts.scaling = "longrope";
  facts.factor = scaling.factor;
  facts.changes_with_length = true;
  facts.original_length = scaling.original_length;
  out.warnings.push_back(LongRopeWarning(scaling.original_length));
  return scaling;
}

// One table for every length: the file's own, or linear scaling combined with a
// gain.
LongRopeScaling OneTable(const Tables& tables, LayerPosition& out) {
  RotaryFacts& facts = *out.rotary;
  LongRopeScaling scaling;
  scaling.short_factor = tables.both;
  if (tables.both.empty()) {
    scaling.short_factor.assign(static_cast<size_t>(facts.rotary_dim / 2), 1.0);
  } else {
    facts.scaling = "rope_freqs";
  }
  scaling.long_factor = scaling.short_factor;
  scaling.original_length = std::max<int64_t>(out.trained_length, 2);
  return scaling;
}

// Applies what a file has besides the fields of a config: tables of divisors,
// and a gain on cos and sin. The linear factor divides positions as well.
void ApplyTables(const Checkpoint& file, const GgufConfig& config,
                 const ReadOptions& options, LayerPosition& out) {
  if (!out.rotary) return;
  RotaryFacts& facts = *out.rotary;
  const Tables tables = ReadTables(file, facts.rotary_dim / 2);
  const double gain = config.attn_factor.value_or(1.0);
  if (tables.Empty() && gain == 1.0) return;
  if (facts.scaling == "yarn") {
    Fail(
        "rope.scaling.type = 'yarn' and a table of divisors exclude each "
        "other");
  }
  const double stretch = facts.scaling == "linear" ? facts.factor : 1.0;
  LongRopeScaling scaling = tables.both.empty() && !tables.longer.empty()
                                ? TwoTables(tables, config, out)
                                : OneTable(tables, out);
  for (auto* list : {&scaling.short_factor, &scaling.long_factor}) {
    for (double& divisor : *list) divisor *= stretch;
  }
  scaling.attention_factor = gain;
  RopeOptions rope;
  rope.base = facts.base;
  rope.rotary_dim = facts.rotary_dim;
  rope.place =
      facts.first_channel == 0 ? RotaryPlace::kLeading : RotaryPlace::kTrailing;
  rope.angles = options.angles;
  rope.softmax_factor = out.softmax_factor;
  rope.scaling = scaling;
  auto encoding = std::make_shared<Rope>(out.head_dim, facts.layout, rope);
  const Rotation rotation =
      encoding->RotationFor(std::max<int64_t>(out.trained_length, 1));
  facts.theta = rotation.theta;
  facts.gain = rotation.gain;
  if (!tables.Empty()) {
    out.attention.words += ", divided by the file's own table";
  }
  if (gain != 1.0) {
    out.attention.words += fmt::format(", cos and sin times {:.6g}", gain);
  }
  out.attention.encoding = std::move(encoding);
}

// The layer without the effect of the file's tensors.
LayerPosition ReadFields(GgufConfig& config, const ReadOptions& options) {
  if (config.arch->scheme == GgufScheme::kFamily) {
    return ConfigSource(std::move(config.fields))->Read(options);
  }
  LayerPosition out;
  out.part = "decoder";
  out.layer = options.layer;
  const Config fields(config.fields.root, "");
  Reader reader(fields, options, out);
  ReadGgufLayer(reader, config);
  if (!options.part.empty() && options.part != out.part) {
    Fail("{} has no part '{}'", out.model_type, Printable(options.part));
  }
  return out;
}

class ParsedGguf final : public LayerSource {
 public:
  ParsedGguf(std::span<const std::byte> bytes,
             std::shared_ptr<const void> owner, const std::string& name)
      : gguf_(ReadGguf(bytes, name)),
        file_(Checkpoint::FromGguf(bytes, std::move(owner), name)) {}

  LayerPosition Read(const ReadOptions& options) const override {
    GgufConfig config = ToConfig(gguf_, options.layer);
    ReadOptions read = options;
    read.layout = config.layout;
    LayerPosition out = ReadFields(config, read);
    // The tables of Gemma 4 and Step 3.5 are for full layers only.
    if (!config.slides || config.arch->scaled) {
      ApplyTables(file_, config, options, out);
    }
    if (out.part == "decoder" && !out.causal && out.window) {
      Fail("attention.causal = false and a sliding window exclude each other");
    }
    const auto& unused = config.unused;
    if (!unused.empty()) {
      const std::string text = fmt::format(
          "{} bear{} on positions, but nothing reads {}", Listed(unused),
          unused.size() == 1 ? "s" : "", unused.size() == 1 ? "it" : "them");
      if (!options.lenient) throw Error(text);
      out.warnings.push_back(text);
    }
    return out;
  }

 private:
  Gguf gguf_;
  Checkpoint file_;
};

}  // namespace

std::unique_ptr<LayerSource> GgufSource(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> owner,
                                        const std::string& name) {
  return std::make_unique<ParsedGguf>(bytes, std::move(owner), name);
}

LayerPosition FromGguf(std::span<const std::byte> bytes,
                       const std::string& name, const ReadOptions& options) {
  return GgufSource(bytes, nullptr, name)->Read(options);
}

LayerPosition FromGguf(const std::string& path, const ReadOptions& options) {
  const MappedFile file = MapFile(path);
  return FromGguf(file.bytes, path, options);
}

}  // namespace locus::models

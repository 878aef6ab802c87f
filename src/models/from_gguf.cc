// FromGguf: metadata in GGUF's spelling becomes the fields of a config, read by
// the family's own reader.
//
// The pair layout is the file's, not the config's: conversion to GGUF sorts the
// q and k weights of LLaMA and its likes into interleaved pairs.
#include <algorithm>

#include "models/families.h"
#include "models/gguf_config.h"
#include "models/mapped_file.h"

namespace locus::models {
namespace {

// Divisors of the frequencies that conversion has worked out: llama3 scaling
// (rope_freqs), LongRoPE (rope_factors_short and rope_factors_long).
void ApplyTables(const Checkpoint& file, const Json& config,
                 const ReadOptions& options, LayerPosition& out) {
  if (!out.rotary) return;
  const auto divisors = [&](const char* name) -> std::vector<double> {
    if (file.Find(name) == nullptr) return {};
    const Tensor tensor = file.Get(name);
    if (tensor.NumElements() != out.rotary->rotary_dim / 2) {
      Fail("tensor '{}' must have {} numbers, one a pair, and has {}", name,
           out.rotary->rotary_dim / 2, tensor.NumElements());
    }
    return tensor.ToVector();
  };
  RotaryFacts& facts = *out.rotary;
  RopeOptions rope;
  rope.base = facts.base;
  rope.rotary_dim = facts.rotary_dim;
  rope.place =
      facts.first_channel == 0 ? RotaryPlace::kLeading : RotaryPlace::kTrailing;
  rope.angles = options.angles;
  rope.softmax_factor = out.softmax_factor;
  const auto both = divisors("rope_freqs.weight");
  const auto shorter = divisors("rope_factors_short.weight");
  const auto longer = divisors("rope_factors_long.weight");
  LongRopeScaling scaling;
  if (!shorter.empty() && !longer.empty()) {
    scaling.short_factor = shorter;
    scaling.long_factor = longer;
    const auto at = config.find("rope_scaling");
    if (at != config.end()) {
      const Config fields(*at, "rope.scaling.");
      scaling.original_length =
          fields.IntOr("original_max_position_embeddings", 0, 2, kMostLength);
      scaling.attention_factor =
          fields.MaybeNumber("attention_factor", 1e-9, 1e9);
    }
    facts.scaling = "longrope";
    facts.changes_with_length = true;
    facts.original_length = scaling.original_length;
  } else if (!both.empty()) {
    scaling.short_factor = scaling.long_factor = both;
    scaling.attention_factor = facts.gain;
    scaling.original_length = std::max<int64_t>(out.trained_length, 2);
    facts.scaling = "rope_freqs";
  } else {
    return;
  }
  if (scaling.original_length < 2) {
    Fail("LongRoPE tables need rope.scaling.original_context_length");
  }
  scaling.factor = static_cast<double>(out.trained_length) /
                   static_cast<double>(scaling.original_length);
  rope.scaling = scaling;
  auto encoding = std::make_shared<Rope>(out.head_dim, facts.layout, rope);
  const Rotation rotation =
      encoding->RotationFor(std::max<int64_t>(out.trained_length, 1));
  facts.theta = rotation.theta;
  facts.gain = rotation.gain;
  out.attention.words += fmt::format(", divided by the file's own table");
  out.attention.encoding = std::move(encoding);
}

}  // namespace

LayerPosition FromGguf(std::span<const std::byte> bytes,
                       const std::string& name, const ReadOptions& options) {
  const GgufConfig config = ToConfig(ReadGguf(bytes, name), options.layer);
  const Checkpoint file = Checkpoint::FromGguf(bytes, nullptr, name);
  Json fields = config.fields;
  const bool tables = file.Find("rope_factors_long.weight") != nullptr;
  // The lists are tensors here, not fields.
  if (tables) fields.erase("rope_scaling");
  ReadOptions read = options;
  read.layout = config.layout;
  LayerPosition out = FromConfig(fields.dump(), read);
  ApplyTables(file, config.fields, options, out);
  const auto& unused = config.unused;
  if (!unused.empty()) {
    const std::string text = fmt::format(
        "{} bear{} on positions, but nothing reads {}", fmt::join(unused, ", "),
        unused.size() == 1 ? "s" : "", unused.size() == 1 ? "it" : "them");
    if (!options.lenient) throw Error(text);
    out.warnings.push_back(text);
  }
  return out;
}

LayerPosition FromGguf(const std::string& path, const ReadOptions& options) {
  const MappedFile file = MapFile(path);
  return FromGguf(file.bytes, path, options);
}

}  // namespace locus::models

// docs/lab.md lists how long they take.
#include "lab/study/preset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "locus/error.h"

namespace locus::lab {
namespace {

// Under 3 minutes: the best-known encodings, one seed.
Preset Quick() {
  return {.text_encodings = {"none", "sinusoidal", "learned", "t5", "alibi",
                             "rope"},
          .synthetic_encodings = {"none", "alibi", "rope"},
          .text_steps = 0.25,
          .synthetic_steps = 0.2,
          .score = 0.125,
          .fine_tune_steps = 10,
          .cost_encodings = {"none", "alibi", "rope", "t5"},
          .cost_rounds = 5};
}

// Under 20 minutes: each family of encodings, three seeds of text.
Preset Default() {
  return {.text_encodings = {"none", "sinusoidal", "learned", "shaw", "t5",
                             "alibi", "kerple", "rope"},
          .synthetic_encodings = {"none", "sinusoidal", "t5", "alibi", "rope"},
          .text_seeds = 3,
          .text_steps = 1,
          .score = 0.5};
}

// Several hours: the whole list.
Preset Full() {
  return {.text_seeds = 5,
          .synthetic_seeds = 3,
          .text_steps = 2,
          .synthetic_steps = 2,
          .fine_tune_steps = 100,
          .extend_every_seed = true,
          .cost_lengths = {512, 1024, 2048}};
}

// Studies of papers, as far as models of this size can reproduce them; their
// claims are in lab/report/claims.cc.

// Press et al. 2022, "Train short, test long": the order past the training
// length.
Preset Alibi() {
  return {.tasks = {"text"},
          .text_encodings = {"sinusoidal", "rope", "t5", "alibi"},
          .text_seeds = 5,
          .extends = false,
          .cost_lengths = {}};
}

// Kazemnejad et al. 2023, "The impact of positional encoding on length
// generalization in transformers": decoders on synthetic tasks.
Preset Kazemnejad() {
  return {.tasks = {"copy", "reverse", "k-back", "recall", "count", "sort"},
          .synthetic_encodings = {"none", "sinusoidal", "t5", "alibi", "rope"},
          .synthetic_seeds = 3,
          .synthetic_steps = 2,
          .cost_lengths = {}};
}

// Chen et al. 2023, bloc97 2023 and Peng et al. 2023: one RoPE model extended
// in every way, without and with fine-tuning.
Preset Extension() {
  return {.tasks = {"text"},
          .text_encodings = {"rope"},
          .text_seeds = 5,
          .fine_tune_steps = 100,
          .extend_every_seed = true,
          .cost_lengths = {}};
}

// The textbook's comparison of all encodings for sequences.
Preset Textbook() {
  return {.tasks = {"text"}, .text_seeds = 3, .extends = false};
}

struct NamedPreset {
  std::string_view name;
  Preset (*make)();
};
constexpr NamedPreset kPresets[] = {
    {"quick", Quick},      {"default", Default},       {"full", Full},
    {"alibi", Alibi},      {"kazemnejad", Kazemnejad}, {"extension", Extension},
    {"textbook", Textbook}};

}  // namespace

Preset FindPreset(const Given& given) {
  const auto at = given.find("preset");
  if (at == given.end()) return Default();
  std::vector<std::string_view> names;
  for (const NamedPreset& preset : kPresets) {
    if (preset.name == at->second.text) return preset.make();
    names.push_back(preset.name);
  }
  throw Error(fmt::format("{} must be one of {}, got '{}'", at->second.where,
                          fmt::join(names, ", "), at->second.text));
}

}  // namespace locus::lab

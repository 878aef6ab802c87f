// docs/lab.md has the times that they take.
#include "lab/study/preset.h"

#include <fmt/format.h>

#include "locus/error.h"

namespace locus::lab {
namespace {

// Under 3 minutes: the best known, one seed.
Preset Quick() {
  return {.text_encodings = {"none", "sinusoidal", "learned", "t5", "alibi",
                             "rope"},
          .puzzle_encodings = {"none", "alibi", "rope"},
          .text_steps = 0.25,
          .puzzle_steps = 0.2,
          .score = 0.125,
          .fine_tune_steps = 10,
          .cost_encodings = {"none", "alibi", "rope", "t5"},
          .cost_rounds = 5};
}

// Under 20 minutes: each family of encodings, three seeds of text.
Preset Default() {
  return {.text_encodings = {"none", "sinusoidal", "learned", "shaw", "t5",
                             "alibi", "kerple", "rope"},
          .puzzle_encodings = {"none", "sinusoidal", "t5", "alibi", "rope"},
          .text_seeds = 3,
          .text_steps = 1,
          .score = 0.5};
}

// Some hours: the whole list.
Preset Full() {
  return {.text_seeds = 5,
          .puzzle_seeds = 3,
          .text_steps = 2,
          .puzzle_steps = 2,
          .fine_tune_steps = 100,
          .extend_every_seed = true,
          .cost_lengths = {512, 1024, 2048}};
}

}  // namespace

Preset FindPreset(const Given& given) {
  const auto at = given.find("preset");
  if (at == given.end() || at->second.text == "default") return Default();
  if (at->second.text == "quick") return Quick();
  if (at->second.text == "full") return Full();
  throw Error(fmt::format("{} must be quick, default or full, got '{}'",
                          at->second.where, at->second.text));
}

}  // namespace locus::lab

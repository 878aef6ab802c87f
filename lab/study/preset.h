// Predefined studies, before options modify them.
#ifndef LOCUS_LAB_STUDY_PRESET_H_
#define LOCUS_LAB_STUDY_PRESET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/study/config.h"

namespace locus::lab {

struct Preset {
  std::vector<std::string> tasks = {};           // empty: all
  std::vector<std::string> text_encodings = {};  // empty: all of the list
  std::vector<std::string> synthetic_encodings = {};
  int64_t text_seeds = 1;
  int64_t synthetic_seeds = 1;
  double text_steps = 1;  // multiplies the task's own number
  double synthetic_steps = 1;
  double score = 1;  // multiplies the task's own tokens
  int64_t fine_tune_steps = 50;
  bool extends = true;             // RoPE models of text
  bool extend_every_seed = false;  // or only the first
  std::vector<int64_t> cost_lengths = {512};
  std::vector<std::string> cost_encodings = {};  // empty: those of text
  int64_t cost_rounds = 9;
};

// The preset that the option "preset" names, or the default one.
Preset FindPreset(const Given& given);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PRESET_H_

// Pictures of rotations: a query rotated by its position, and the score of a
// matching key.
#ifndef LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_
#define LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_

#include <random>
#include <vector>

#include "cli/answers/figure.h"

namespace locus::cli {

// Standard normal [1, heads, length, head_dim] f64.
Tensor RandomRows(std::mt19937_64& engine, const ExampleConfig& config,
                  int64_t length, int64_t heads);

// Two panels: position x channel of a random rotated query; and the score of a
// query with a key of the same content, by offset, relative to the score at
// offset 0.
std::vector<Panel> RotationPanels(const Encoding& encoding,
                                  const ExampleConfig& config);

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_

// Pictures of rotations: a query rotated by its position, and what a matching
// key scores.
#ifndef LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_
#define LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_

#include <random>
#include <vector>

#include "cli/answers/figure.h"

namespace locus::cli {

// Standard normal [1, heads, length, head_dim] f64.
Tensor RandomRows(std::mt19937_64& engine, const ExampleConfig& config,
                  int64_t length, int64_t heads);

// Two panels: position x channel of a random query, rotated; and the score of
// a query on a key with the same content, by offset, as a share of the score
// without any offset.
std::vector<Panel> RotationPanels(const Encoding& encoding,
                                  const ExampleConfig& config);

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_FIGURE_ROTATION_H_

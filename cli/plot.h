// Draws a figure to a file with gnuplot, or in the terminal.
#ifndef LOCUS_CLI_PLOT_H_
#define LOCUS_CLI_PLOT_H_

#include <cstdint>
#include <span>
#include <string>

#include "cli/answers/figure.h"

namespace locus::cli {

// Writes a .png, .svg or .pdf file (by its name) beside `path` and renames it
// when it is complete. Several figures are placed side by side, three per row.
// Throws Error if gnuplot is missing or fails, or if the file cannot be
// written; then no file is left behind.
void DrawFile(std::span<const Figure> figures, const std::string& path);

enum class Colours : uint8_t { kNone, k256, k24Bit };

// Text of at most `width` columns; plain ASCII if there are no colours.
std::string DrawText(const Figure& figure, int width, Colours colours);

}  // namespace locus::cli

#endif  // LOCUS_CLI_PLOT_H_

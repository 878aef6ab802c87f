// Drawing a figure: to a file through gnuplot, or into the terminal.
#ifndef LOCUS_CLI_PLOT_H_
#define LOCUS_CLI_PLOT_H_

#include <cstdint>
#include <span>
#include <string>

#include "cli/answers/figure.h"

namespace locus::cli {

// Writes a .png, .svg or .pdf file (by its name) beside `path` and renames it
// when it is whole. Several figures stand side by side, three in a row. Throws
// Error if gnuplot is missing or fails, or the file cannot be written; nothing
// is left behind then.
void DrawFile(std::span<const Figure> figures, const std::string& path);

enum class Colours : uint8_t { kNone, k256, k24Bit };

// Text of at most `width` columns. Without colours it is plain ASCII.
std::string DrawText(const Figure& figure, int width, Colours colours);

}  // namespace locus::cli

#endif  // LOCUS_CLI_PLOT_H_

// A model's use of positions according to its config, as text.
#ifndef LOCUS_CLI_EXPLAIN_H_
#define LOCUS_CLI_EXPLAIN_H_

#include <string>

#include "cli/answers/explain.h"
#include "cli/app.h"
#include "locus/models.h"

namespace locus::cli {

std::string ExplainText(const Explained& explained, int width);
// Wavelengths of the pairs on a logarithmic scale, compared with the lengths.
std::string WavelengthPicture(const models::LayerPosition& position, int width);

}  // namespace locus::cli

#endif  // LOCUS_CLI_EXPLAIN_H_

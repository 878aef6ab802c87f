// What a model's config says about positions, as data, as text, as differences.
#ifndef LOCUS_CLI_EXPLAIN_H_
#define LOCUS_CLI_EXPLAIN_H_

#include <string>
#include <vector>

#include "cli/app.h"
#include "locus/models.h"

namespace locus::cli {

// Layers of one part that are alike in everything.
struct LayerGroup {
  std::vector<int64_t> layers = {};
  models::LayerPosition position = {};  // of the first of them
  Json json = {};                       // of all of them
};

struct Explained {
  std::string file = {};
  std::string family = {};
  std::string model_type = {};
  std::vector<LayerGroup> groups = {};
};

// A config.json, a folder that holds one, or a GGUF file. `options.layer` below
// 0 means every layer, an empty part every part.
Explained Explain(const std::string& path, models::ReadOptions options);

// Everything about a layer but its number.
Json LayerJson(const models::LayerPosition& position);
Json ExplainJson(const Explained& explained);

std::string ExplainText(const Explained& explained, int width);
// Wavelengths of the pairs on a logarithmic scale, against the lengths.
std::string WavelengthPicture(const models::LayerPosition& position, int width);

// Where position enters, at the input first.
std::vector<std::string> TermsOf(const models::LayerPosition& position);

// "0-4, 6-10".
std::string Ranges(const std::vector<int64_t>& numbers);

// One line a field that differs, with the layers that it differs in; empty if
// the two are alike.
std::vector<std::string> Differences(const Explained& a, const Explained& b);

}  // namespace locus::cli

#endif  // LOCUS_CLI_EXPLAIN_H_

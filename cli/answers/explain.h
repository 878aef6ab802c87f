// A model's use of positions according to its config, as data and as
// differences.
#ifndef LOCUS_CLI_ANSWERS_EXPLAIN_H_
#define LOCUS_CLI_ANSWERS_EXPLAIN_H_

#include <string>
#include <vector>

#include "cli/answers/answers.h"
#include "locus/models.h"

namespace locus::cli {

// Layers of one part that are identical in everything.
struct LayerGroup {
  std::vector<int64_t> layers = {};
  models::LayerPosition position = {};  // of the first layer
  Json json = {};                       // for all layers
};

struct Explained {
  std::string file = {};
  std::string family = {};
  std::string model_type = {};
  std::vector<LayerGroup> groups = {};
};

// Negative `options.layer` means every layer, an empty part every part; `file`
// is the name of the model in the answer.
Explained Explain(const models::ModelConfig& model, const std::string& file,
                  models::ReadOptions options);

// Everything about a layer except its number.
Json LayerJson(const models::LayerPosition& position);
Json ExplainJson(const Explained& explained);

// The terms with positions, the input first.
std::vector<std::string> TermsOf(const models::LayerPosition& position);

// "causal, the last 4096 keys".
std::string MaskWords(const models::LayerPosition& position);

// "0-4, 6-10".
std::string Ranges(const std::vector<int64_t>& numbers);

// One line per field that differs, with the layers where it differs; empty if
// the models are equal.
std::vector<std::string> Differences(const Explained& a, const Explained& b);

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_EXPLAIN_H_

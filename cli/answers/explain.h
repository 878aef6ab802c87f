// What a model's config says about positions, as data and as differences.
#ifndef LOCUS_CLI_ANSWERS_EXPLAIN_H_
#define LOCUS_CLI_ANSWERS_EXPLAIN_H_

#include <string>
#include <vector>

#include "cli/answers/answers.h"
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

// `options.layer` below 0 means every layer, an empty part every part; `file`
// is what the answer calls the model.
Explained Explain(const models::ModelConfig& model, const std::string& file,
                  models::ReadOptions options);

// Everything about a layer but its number.
Json LayerJson(const models::LayerPosition& position);
Json ExplainJson(const Explained& explained);

// Where position enters, at the input first.
std::vector<std::string> TermsOf(const models::LayerPosition& position);

// "causal, the last 4096 keys".
std::string MaskWords(const models::LayerPosition& position);

// "0-4, 6-10".
std::string Ranges(const std::vector<int64_t>& numbers);

// One line a field that differs, with the layers that it differs in; empty if
// the two are alike.
std::vector<std::string> Differences(const Explained& a, const Explained& b);

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_EXPLAIN_H_

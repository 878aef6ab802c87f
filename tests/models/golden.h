// Reads the files of tests/models/golden, made by tools/golden.py.
#ifndef LOCUS_TESTS_MODELS_GOLDEN_H_
#define LOCUS_TESTS_MODELS_GOLDEN_H_

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "locus/error.h"
#include "locus/tensor.h"

namespace locus::models {

using GoldenJson = nlohmann::json;

inline GoldenJson GoldenCases(const std::string& file) {
  std::ifstream in(std::string(LOCUS_GOLDEN_DIR) + "/" + file);
  if (!in) throw Error("no golden file " + file);
  return GoldenJson::parse(in)["cases"];
}

// Nested lists as an f64 tensor, with `lead` axes of size 1 in front.
inline Tensor GoldenTensor(const GoldenJson& lists, int lead = 0) {
  std::vector<int64_t> shape(static_cast<size_t>(lead), 1);
  std::vector<GoldenJson> level = {lists};
  while (level.front().is_array()) {
    shape.push_back(static_cast<int64_t>(level.front().size()));
    std::vector<GoldenJson> next;
    for (const GoldenJson& list : level) {
      for (const GoldenJson& entry : list) next.push_back(entry);
    }
    level = std::move(next);
  }
  std::vector<double> values;
  for (const GoldenJson& entry : level) values.push_back(entry.get<double>());
  return Tensor::From(shape, values);
}

}  // namespace locus::models

#endif  // LOCUS_TESTS_MODELS_GOLDEN_H_

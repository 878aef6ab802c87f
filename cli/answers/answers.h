// The answers of the commands list, show and check, as JSON. The tool prints
// it, and the explorer page requests it in the browser.
#ifndef LOCUS_CLI_ANSWERS_ANSWERS_H_
#define LOCUS_CLI_ANSWERS_ANSWERS_H_

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/answers/figure.h"
#include "locus/check.h"
#include "locus/descriptor.h"

namespace locus::cli {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

// An encoding with its options, and the object made from them.
struct Chosen {
  std::string name = {};  // "rope{base=100}"
  const EncodingInfo* info = nullptr;
  ExampleConfig config = {};
};

// Sizes of an example. They remain text until they are parsed, so that an
// invalid one gets its own error message.
struct SizeTexts {
  std::string heads = "8";
  std::string dim = "64";
  std::string length = "128";
  std::string seed = "1";
};

// Throws Error for a number that is out of range.
ExampleConfig ReadSizes(const SizeTexts& sizes);

// An integer in [lowest, highest] from the text given with `flag`; throws Error
// otherwise.
int64_t ReadNumber(const char* flag, const std::string& text, int64_t lowest,
                   int64_t highest);

// The shape of a self-attention call of an example.
Shape ShapeOf(const ExampleConfig& config);

// The names of the terms that the example of an encoding lowers to.
std::vector<std::string> TermsOf(const EncodingInfo& info);

// The settings and terms of an example, as JSON.
Json ConfigJson(const ExampleConfig& config);
// Fields of a constructor, or options of an example, as JSON.
Json FieldsJson(std::span<const Field> fields);
// NaN and infinities become null.
Json NumberJson(double value);

// The parameters of an encoding, in its order: [{"shape": [], "values": []}].
// Throws Error, or Json::exception where the JSON has another form.
std::vector<Tensor> ReadParams(const Json& params);

// The answer of `locus list --json`.
Json ListJson();
// The answer of `locus show --json`, without the written file.
Json ShowJson(const Chosen& chosen, const Terms& terms, const Figure& figure);
// The answer of `locus check --json`, without requirements.
Json CheckJson(const ExampleConfig& config, const CheckReport& report);

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_ANSWERS_H_

#include "models/nonfinite.h"

namespace locus::models {
namespace {

constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
constexpr std::string_view kSpace = " \t\n\r";

// The word at `at` if it is a value, or an empty view. A value follows ':', ','
// or '[' and precedes ',', '}' or ']', so keys do not match.
std::string_view WordAt(std::string_view json, size_t at) {
  const size_t before = at == 0 ? at : json.find_last_not_of(kSpace, at - 1);
  if (at == 0 || before == std::string_view::npos ||
      std::string_view(":,[").find(json[before]) == std::string_view::npos) {
    return {};
  }
  for (const std::string_view word : kWords) {
    if (!json.substr(at).starts_with(word)) continue;
    const size_t after = json.find_first_not_of(kSpace, at + word.size());
    const bool ends =
        after != std::string_view::npos &&
        std::string_view(",}]").find(json[after]) != std::string_view::npos;
    return ends ? word : std::string_view();
  }
  return {};
}

}  // namespace

std::string QuoteNonFinite(std::string_view json) {
  std::string quoted;
  quoted.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      quoted += c;
      if (c == '\\' && i + 1 < json.size()) quoted += json[++i];
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    const bool may_begin = c == '-' || c == 'I' || c == 'N';
    const std::string_view word =
        may_begin ? WordAt(json, i) : std::string_view();
    if (word.empty()) {
      quoted += c;
      continue;
    }
    quoted += '"';
    quoted += word;
    quoted += '"';
    i += word.size() - 1;
  }
  return quoted;
}

}  // namespace locus::models

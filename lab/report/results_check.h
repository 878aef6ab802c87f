// Checks whether a results.json from disk can be shown by the report, so that
// code that draws it may rely on every key and type.
#ifndef LOCUS_LAB_REPORT_RESULTS_CHECK_H_
#define LOCUS_LAB_REPORT_RESULTS_CHECK_H_

#include <filesystem>
#include <string_view>

#include "lab/study/store.h"

namespace locus::lab {

// Throws Error with the JSON path, the expected value and the actual one:
// "runs[0].evaluations[1].loss must be a number or null, got an object".
// Ignores keys that the report does not show.
void CheckResults(const Json& results);

// Parses and checks the text of a results.json. Throws Error.
Json ParseResults(std::string_view text);

// The same for a file, which the Error then names.
Json ReadResults(const std::filesystem::path& path);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_RESULTS_CHECK_H_

// Whether a results.json that was read from disk is one that the report can
// show. Code that draws it may then take every key and type for granted.
#ifndef LOCUS_LAB_REPORT_RESULTS_CHECK_H_
#define LOCUS_LAB_REPORT_RESULTS_CHECK_H_

#include <filesystem>
#include <string_view>

#include "lab/study/store.h"

namespace locus::lab {

// Throws Error with the JSON path, what must be there and what is:
// "runs[0].evaluations[1].loss must be a number or null, got an object".
// Keys that the report does not show are not looked at.
void CheckResults(const Json& results);

// The text of a results.json, parsed and checked. Throws Error.
Json ParseResults(std::string_view text);

// The same of a file, which the Error then names.
Json ReadResults(const std::filesystem::path& path);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_RESULTS_CHECK_H_

// Exports the results of a study as tables and charts for a paper, in addition
// to the report.
#ifndef LOCUS_LAB_REPORT_EXPORT_H_
#define LOCUS_LAB_REPORT_EXPORT_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lab/study/config.h"

namespace locus::lab {

// Splits "csv,svg,pdf". Throws Error for a format other than csv, svg, pdf,
// png.
std::vector<std::string> ReadFormats(const GivenValue& given);

// Writes FOLDER/export/: summary.csv, runs.csv, training.csv and cost.csv, and
// for each task charts of its loss and accuracy by length. Returns the files.
std::vector<std::filesystem::path> Export(
    const Json& results, const std::filesystem::path& folder,
    const std::vector<std::string>& formats);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_EXPORT_H_

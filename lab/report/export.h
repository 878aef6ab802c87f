// What a study found as tables and charts for a paper, beside the report.
#ifndef LOCUS_LAB_REPORT_EXPORT_H_
#define LOCUS_LAB_REPORT_EXPORT_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lab/study/config.h"

namespace locus::lab {

// "csv,svg,pdf" as its words. Throws Error for another than csv, svg, pdf, png.
std::vector<std::string> ReadFormats(const GivenValue& given);

// Writes FOLDER/export/: summary.csv, runs.csv, training.csv and cost.csv, and
// for each task its loss and accuracy by length as charts. Returns the files.
std::vector<std::filesystem::path> Export(
    const Json& results, const std::filesystem::path& folder,
    const std::vector<std::string>& formats);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_EXPORT_H_

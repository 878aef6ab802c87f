// The text for the terminal at the end.
#include <fmt/format.h>

#include "lab/report/report.h"

namespace locus::lab {

std::string ReportText(const Json& results) {
  std::string text;
  for (const Table& table :
       {LossTable(results), AccuracyTable(results), ExtensionTable(results),
        SpeedTable(results), CostTable(results)}) {
    if (table.rows.empty()) continue;
    text += fmt::format("\n{}\n{}", table.caption, table.Text());
  }
  text +=
      "\n* the best and those that do not differ significantly from it; ? the "
      "task was not learned\n";
  // Too wide for columns.
  if (!results["claims"].empty()) text += "\nWhat papers claim\n";
  for (const Json& claim : results["claims"]) {
    text += fmt::format(
        "  [{}] {}: {}; here {}\n", claim["agrees"].get<std::string>(),
        claim["paper"].get<std::string>(), claim["claim"].get<std::string>(),
        claim["here"].get<std::string>());
  }
  text += "\n";
  for (const std::string& sentence : Findings(results)) text += sentence + "\n";
  return text;
}

}  // namespace locus::lab

// Lines of comma-separated values (RFC 4180).
#ifndef LOCUS_CLI_CSV_H_
#define LOCUS_CLI_CSV_H_

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace locus::cli {

// Quoted if it has a comma, a quote or a line break.
inline std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// With the digits of a float32; empty if it is not finite.
inline std::string CsvCell(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

inline std::string CsvLine(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t n = 0; n < cells.size(); ++n)
    line += (n == 0 ? "" : ",") + cells[n];
  return line + "\n";
}

}  // namespace locus::cli

#endif  // LOCUS_CLI_CSV_H_

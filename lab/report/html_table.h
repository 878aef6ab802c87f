// An HTML table as web/README.md describes it.
#ifndef LOCUS_LAB_REPORT_HTML_TABLE_H_
#define LOCUS_LAB_REPORT_HTML_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace locus::lab {

std::string EscapeHtml(std::string_view text);

struct HtmlCell {
  std::string html = {};   // escaped
  std::string value = {};  // a number in full, if it is one
  std::string title = {};  // escaped; shown on request
  bool number = false;
  bool best = false;
  bool refused = false;
  bool unlearned = false;  // not comparable
};

// Text, a number ("-" if NaN) with its digits, a refusal.
HtmlCell TextCell(std::string_view text);
HtmlCell NumberCell(double value, std::string_view shown);
HtmlCell RefusedCell(std::string_view sentence);

struct HtmlColumn {
  std::string title = {};
  bool number = false;
};

struct HtmlRow {
  std::string encoding = {};  // what it is about, if an encoding
  std::vector<HtmlCell> cells = {};
};

struct HtmlTable {
  std::string name = {};  // of the mark; the id is "table-" and this
  std::string caption = {};
  std::vector<HtmlColumn> columns = {};
  std::vector<HtmlRow> rows = {};
  bool sortable = true;

  std::string Html() const;
};

// A paragraph in the place of a table or list without data.
std::string NothingHtml(std::string_view why);

// Marks the lowest or the highest number of a column.
enum class Best : uint8_t { kLowest, kHighest };
void MarkBest(HtmlTable& table, size_t column, Best best);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_HTML_TABLE_H_

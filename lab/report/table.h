// A table for the page, in the format of web/README.md, and for the terminal.
#ifndef LOCUS_LAB_REPORT_TABLE_H_
#define LOCUS_LAB_REPORT_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace locus::lab {

std::string EscapeHtml(std::string_view text);

struct Cell {
  std::string text = {};
  std::string small = {};  // after it, in smaller letters
  std::string value = {};  // the full number, if it is one
  std::string title = {};  // shown on request
  bool number = false;
  bool best = false;
  bool refused = false;
  bool unlearned = false;  // not comparable

  std::string Html(bool row_header) const;
  // "2.413 ± 0.012*": a star marks the best, a question mark the unlearned.
  std::string Text() const;
};

// A cell with text; a number ("-" if NaN) in the given form; a refusal.
Cell TextCell(std::string_view text);
Cell NumberCell(double value, std::string_view shown);
Cell RefusedCell(std::string_view sentence);

struct Column {
  std::string title = {};
  bool number = false;
};

struct Row {
  std::string encoding = {};  // the encoding that the row is about, if any
  std::vector<Cell> cells = {};
};

struct Table {
  std::string name = {};  // of the placeholder; the id is "table-" + name
  std::string caption = {};
  std::vector<Column> columns = {};
  std::vector<Row> rows = {};
  bool sortable = true;

  std::string Html() const;
  // Lines of aligned columns, without the caption.
  std::string Text() const;
};

// A paragraph in place of a table or list without data.
std::string NothingHtml(std::string_view why);

// Marks the lowest or the highest number of a column.
enum class Best : uint8_t { kLowest, kHighest };
void MarkBest(Table& table, size_t column, Best best);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_TABLE_H_

#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace locus::lab {
namespace {

// Number of UTF-8 characters: each has one byte that is not a continuation.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string NothingHtml(std::string_view why) {
  return fmt::format("<p class=\"none\">{}</p>", EscapeHtml(why));
}

Cell TextCell(std::string_view text) { return {.text = std::string(text)}; }

Cell NumberCell(double value, std::string_view shown) {
  if (!std::isfinite(value)) return {.text = "–", .number = true};
  return {.text = std::string(shown),
          .value = fmt::format("{}", value),
          .number = true};
}

Cell RefusedCell(std::string_view sentence) {
  return {.text = "refused",
          .title = std::string(sentence),
          .number = true,
          .refused = true};
}

std::string Cell::Html(bool row_header) const {
  std::string classes;
  if (number) classes += " number";
  if (best) classes += " best";
  if (refused) classes += " refused";
  if (unlearned) classes += " unlearned";
  std::string attributes;
  const auto add = [&](const char* name, std::string_view attribute) {
    if (attribute.empty()) return;
    attributes += fmt::format(" {}=\"{}\"", name, EscapeHtml(attribute));
  };
  add("scope", row_header ? "row" : "");
  add("class", classes.empty() ? classes : classes.substr(1));
  add("data-value", value);
  add("title", title);
  const char* tag = row_header ? "th" : "td";
  return fmt::format(
      "<{}{}>{}{}</{}>", tag, attributes, EscapeHtml(text),
      small.empty() ? "" : fmt::format(" <small>{}</small>", EscapeHtml(small)),
      tag);
}

std::string Cell::Text() const {
  return fmt::format("{}{}{}{}", text, small.empty() ? "" : " ", small,
                     best        ? "*"
                     : unlearned ? "?"
                                 : "");
}

std::string Table::Text() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns) lines[0].push_back(column.title);
  for (const Row& row : rows) {
    lines.emplace_back();
    for (const Cell& cell : row.cells) lines.back().push_back(cell.Text());
  }
  std::string text;
  std::vector<size_t> widths(columns.size());
  for (const auto& line : lines) {
    for (size_t n = 0; n < line.size(); ++n) {
      widths[n] = std::max(widths[n], Width(line[n]));
    }
  }
  for (const auto& line : lines) {
    std::string shown;
    for (size_t n = 0; n < line.size(); ++n) {
      const std::string gap(widths[n] - Width(line[n]), ' ');
      shown += "  " + (columns[n].number ? gap + line[n] : line[n] + gap);
    }
    text += shown.substr(0, shown.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string Table::Html() const {
  std::string html = fmt::format(
      "<table id=\"table-{}\"{}>\n<caption>{}</caption>\n<thead><tr>", name,
      sortable ? " class=\"sortable\"" : "", EscapeHtml(caption));
  for (const Column& column : columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>",
                        column.number ? " class=\"number\"" : "",
                        EscapeHtml(column.title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Row& row : rows) {
    html += row.encoding.empty() ? "<tr>"
                                 : fmt::format("<tr data-encoding=\"{}\">",
                                               EscapeHtml(row.encoding));
    for (size_t n = 0; n < row.cells.size(); ++n) {
      html += row.cells[n].Html(/*row_header=*/n == 0);
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

void MarkBest(Table& table, size_t column, Best best) {
  Cell* found = nullptr;
  double value = 0;
  for (Row& row : table.rows) {
    Cell& cell = row.cells[column];
    if (cell.value.empty()) continue;
    // Unlike std::stod, it accepts subnormal numbers.
    const double here = std::strtod(cell.value.c_str(), nullptr);
    if (!found || (best == Best::kLowest ? here < value : here > value)) {
      found = &cell;
      value = here;
    }
  }
  if (found) found->best = true;
}

}  // namespace locus::lab

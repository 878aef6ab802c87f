#include "lab/report/html_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace locus::lab {
namespace {

std::string CellHtml(const HtmlCell& cell, bool row_header) {
  std::string classes;
  if (cell.number) classes += " number";
  if (cell.best) classes += " best";
  if (cell.refused) classes += " refused";
  if (cell.unlearned) classes += " unlearned";
  std::string attributes;
  if (row_header) attributes += " scope=\"row\"";
  if (!classes.empty()) {
    attributes += fmt::format(" class=\"{}\"", classes.substr(1));
  }
  if (!cell.value.empty()) {
    attributes += fmt::format(" data-value=\"{}\"", cell.value);
  }
  if (!cell.title.empty()) {
    attributes += fmt::format(" title=\"{}\"", cell.title);
  }
  const char* tag = row_header ? "th" : "td";
  return fmt::format("<{}{}>{}</{}>", tag, attributes, cell.html, tag);
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

HtmlCell TextCell(std::string_view text) { return {.html = EscapeHtml(text)}; }

HtmlCell NumberCell(double value, std::string_view shown) {
  if (!std::isfinite(value)) return {.html = "–", .number = true};
  return {.html = std::string(shown),
          .value = fmt::format("{}", value),
          .number = true};
}

HtmlCell RefusedCell(std::string_view sentence) {
  return {.html = "refused",
          .title = EscapeHtml(sentence),
          .number = true,
          .refused = true};
}

std::string HtmlTable::Html() const {
  std::string html = fmt::format(
      "<table id=\"table-{}\"{}>\n<caption>{}</caption>\n<thead><tr>", name,
      sortable ? " class=\"sortable\"" : "", EscapeHtml(caption));
  for (const HtmlColumn& column : columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>",
                        column.number ? " class=\"number\"" : "",
                        EscapeHtml(column.title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const HtmlRow& row : rows) {
    html += row.encoding.empty() ? "<tr>"
                                 : fmt::format("<tr data-encoding=\"{}\">",
                                               EscapeHtml(row.encoding));
    for (size_t n = 0; n < row.cells.size(); ++n) {
      html += CellHtml(row.cells[n], /*row_header=*/n == 0);
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

void MarkBest(HtmlTable& table, size_t column, Best best) {
  HtmlCell* found = nullptr;
  double value = 0;
  for (HtmlRow& row : table.rows) {
    HtmlCell& cell = row.cells[column];
    if (cell.value.empty()) continue;
    // Unlike std::stod, it takes a subnormal number for what it is.
    const double here = std::strtod(cell.value.c_str(), nullptr);
    if (!found || (best == Best::kLowest ? here < value : here > value)) {
      found = &cell;
      value = here;
    }
  }
  if (found) found->best = true;
}

}  // namespace locus::lab

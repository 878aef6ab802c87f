// locus list: every encoding, where position enters, and who uses it.
#include <fmt/format.h>

#include <array>
#include <cctype>

#include "cli/app.h"
#include "cli/names.h"

namespace locus::cli {
namespace {

// Shortens "Su et al., RoFormer: ..., 2021" to "Su et al., 2021"; text without
// a title in the middle is unchanged.
std::string ShortPaper(std::string_view paper) {
  const size_t comma = paper.find(", ");
  if (comma == std::string_view::npos) return std::string(paper);
  for (size_t at = paper.size(); at-- > 3;) {
    bool year = true;
    for (size_t n = at - 3; n <= at; ++n) {
      year = year && std::isdigit(static_cast<unsigned char>(paper[n])) != 0;
    }
    if (year && at - 3 > comma) {
      return fmt::format("{}, {}", paper.substr(0, comma),
                         paper.substr(at - 3, 4));
    }
  }
  return std::string(paper);
}

// Columns: five of fixed width, then paper and models share the remaining
// width.
using Row = std::array<std::vector<std::string>, 7>;

std::string Table(const std::vector<Row>& rows, size_t total) {
  std::array<size_t, 7> widths{};
  for (size_t c = 0; c < 5; ++c) {
    for (const Row& row : rows) {
      for (const std::string& line : row[c]) {
        widths[c] = std::max(widths[c], line.size());
      }
    }
  }
  constexpr size_t kGap = 2;
  size_t used = 6 * kGap;
  for (size_t c = 0; c < 5; ++c) used += widths[c];
  // Papers are short and models are lists, so the ratio is 5 to 4.
  const size_t left = std::max<size_t>(total > used ? total - used : 0, 18);
  widths[5] = left * 5 / 9;
  widths[6] = left - widths[5];
  std::string text;
  for (Row row : rows) {
    for (size_t c : {size_t{5}, size_t{6}}) {
      row[c] = Wrap(row[c][0], widths[c]);
    }
    size_t lines = 0;
    for (const auto& cell : row) lines = std::max(lines, cell.size());
    for (size_t n = 0; n < lines; ++n) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const std::string& cell = n < row[c].size() ? row[c][n] : "";
        line += fmt::format("{:<{}}", cell, widths[c] + kGap);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
    }
  }
  return text;
}

std::string ListText() {
  std::vector<Row> rows = {{{{"encoding"},
                             {"enters at"},
                             {"position"},
                             {"trained"},
                             {"extrapolates"},
                             {"paper"},
                             {"models"}}}};
  for (const EncodingInfo& info : Encodings()) {
    std::vector<std::string> terms = TermsOf(info);
    if (terms.empty()) terms = {"-"};
    rows.push_back({{{std::string(info.name)},
                     terms,
                     {std::string(ReferenceName(info.reference))},
                     {info.trainable ? "yes" : "no"},
                     {std::string(ExtrapolatesName(info.extrapolates))},
                     {ShortPaper(info.paper)},
                     {std::string(info.models)}}});
  }
  return Table(rows, static_cast<size_t>(TerminalWidth()));
}

}  // namespace

void AddList(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "list", "List the encodings: where position enters, and who uses them.");
  command->footer(
      "Example:\n  locus list --json\n\n"
      "JSON: {version, encodings: [{name, class, title, formula, terms, "
      "reference, trainable,\nextrapolates, extrapolation_note, picture, "
      "options, paper, models, summary, fields, "
      "example_options, variants,\ntraining, shared_by_layers}]}; a field, of "
      "the constructor or an option, is {name,\ntype, default, choices, shape, "
      "optional, by_name, sentence, slider: {lowest, highest, "
      "step,\nlogarithmic}}, a "
      "row of training {name, start, size, rate, decays, lowest,\nhighest, "
      "highest_for, shared_by_heads, projection}");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print a JSON object");
  command->callback([&code, json] {
    if (*json) {
      EmitJson(ListJson());
    } else {
      Emit(ListText());
    }
    code = kFine;
  });
}

}  // namespace locus::cli

// locus check ENCODING...: properties, each with a number and a verdict.
#include "locus/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/app.h"
#include "cli/csv.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

struct Args {
  EncodingArgs encoding = {};
  std::vector<std::string> require = {};
  bool json = false;
  bool csv = false;
};

struct Requirement {
  std::string property;
  Verdict verdict = Verdict::kYes;
};

Requirement ReadRequirement(const std::string& text) {
  const size_t at = text.find('=');
  const std::string value = at == std::string::npos ? "" : text.substr(at + 1);
  if (value != "yes" && value != "no") {
    throw Error(fmt::format(
        "--require must be PROPERTY=yes or PROPERTY=no, got '{}'", text));
  }
  return {text.substr(0, at), value == "yes" ? Verdict::kYes : Verdict::kNo};
}

std::string NumberText(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.3g}", value);
}

std::string ReportText(const EncodingInfo& info, const CheckReport& report) {
  std::string text =
      fmt::format("{}: {}\n{}\n\n", info.name, info.title, info.formula);
  // Widths of property, verdict and number; the finding gets the rest.
  constexpr size_t kName = 16, kVerdict = 14, kNumber = 8, kGap = 2;
  constexpr size_t kLeft = kName + kVerdict + kNumber + 3 * kGap;
  const size_t width = static_cast<size_t>(TerminalWidth());
  const size_t rest = std::max<size_t>(width > kLeft ? width - kLeft : 0, 30);
  for (const Property& p : report.properties) {
    const auto lines = Wrap(p.sentence, rest);
    text += fmt::format("{:<{}}{:<{}}{:>{}}  {}\n", p.name, kName + kGap,
                        VerdictName(p.verdict), kVerdict + kGap,
                        NumberText(p.value), kNumber, lines[0]);
    for (size_t n = 1; n < lines.size(); ++n) {
      text += fmt::format("{:<{}}{}\n", "", kLeft, lines[n]);
    }
  }
  return text;
}

// The meaning of each property's number; several if encodings of the input are
// measured differently.
std::string Measures(const std::vector<CheckReport>& reports) {
  std::string text;
  for (size_t row = 0; row < reports[0].properties.size(); ++row) {
    std::vector<std::string> known;
    for (const CheckReport& report : reports) {
      const Property& p = report.properties[row];
      if (std::isnan(p.value) || std::ranges::count(known, p.measure)) continue;
      known.push_back(p.measure);
      const std::string line = fmt::format("{}: {}", p.name, p.measure);
      bool first = true;
      const auto width = static_cast<size_t>(TerminalWidth() - 4);
      for (const std::string& part : Wrap(line, width)) {
        text += fmt::format("{}{}\n", first ? "  " : "    ", part);
        first = false;
      }
    }
  }
  return text;
}

// Several encodings side by side: a row per property, with verdict and number.
std::string TableText(const std::vector<Chosen>& all,
                      const std::vector<CheckReport>& reports) {
  constexpr size_t kGap = 2, kName = 16;
  std::vector<size_t> widths;
  const auto cell = [](const Property& p) {
    return std::isnan(p.value) ? std::string(VerdictName(p.verdict))
                               : fmt::format("{} {}", VerdictName(p.verdict),
                                             NumberText(p.value));
  };
  std::string text = fmt::format("{:<{}}", "", kName);
  for (size_t n = 0; n < all.size(); ++n) {
    size_t width = all[n].name.size();
    for (const Property& p : reports[n].properties) {
      width = std::max(width, cell(p).size());
    }
    widths.push_back(width + kGap);
    text += fmt::format("  {:<{}}", all[n].name, width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
  for (size_t row = 0; row < reports[0].properties.size(); ++row) {
    text += fmt::format("{:<{}}", reports[0].properties[row].name, kName);
    for (size_t n = 0; n < all.size(); ++n) {
      text += fmt::format("  {:<{}}", cell(reports[n].properties[row]),
                          widths[n] - kGap);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text + "\nThe numbers:\n" + Measures(reports);
}

std::string CsvText(const std::vector<Chosen>& all,
                    const std::vector<CheckReport>& reports) {
  std::string text = CsvLine({"encoding", "property", "verdict", "value",
                              "threshold", "measure", "sentence"});
  for (size_t n = 0; n < all.size(); ++n) {
    for (const Property& p : reports[n].properties) {
      text += CsvLine({CsvCell(all[n].name), CsvCell(p.name),
                       CsvCell(VerdictName(p.verdict)), CsvCell(p.value),
                       CsvCell(p.threshold), CsvCell(p.measure),
                       CsvCell(p.sentence)});
    }
  }
  return text;
}

// The requirements for one encoding, as text and JSON; whether they are met.
struct Judgement {
  std::string text = {};
  Json json = Json::array();
  bool met = true;
};

Judgement Judge(const std::vector<Requirement>& required,
                const CheckReport& report, const std::string& whose) {
  Judgement all;
  for (const Requirement& r : required) {
    const Verdict found = report.Find(r.property).verdict;
    const bool holds = found == r.verdict;
    all.met = all.met && holds;
    all.text += fmt::format(
        "required {}{} = {}: {}\n", whose, r.property, VerdictName(r.verdict),
        holds ? "holds" : fmt::format("found {}", VerdictName(found)));
    all.json.push_back({{"property", r.property},
                        {"required", VerdictName(r.verdict)},
                        {"found", VerdictName(found)},
                        {"met", holds}});
  }
  return all;
}

int Run(const Args& args) {
  const std::vector<Chosen> all = args.encoding.Read();
  if (args.csv && args.json) {
    throw Error("--csv and --json exclude each other");
  }
  std::vector<Requirement> required;
  for (const std::string& text : args.require) {
    required.push_back(ReadRequirement(text));
  }
  std::vector<CheckReport> reports;
  for (const Chosen& chosen : all) {
    reports.push_back(Check(*chosen.info, chosen.config));
  }
  std::string text = all.size() == 1 ? ReportText(*all[0].info, reports[0])
                                     : TableText(all, reports);
  if (!required.empty()) text += '\n';
  Json list = Json::array();
  bool met = true;
  for (size_t n = 0; n < all.size(); ++n) {
    const Judgement judged =
        Judge(required, reports[n], all.size() == 1 ? "" : all[n].name + ": ");
    text += judged.text;
    met = met && judged.met;
    list.push_back(CheckJson(all[n].config, reports[n]));
    list.back()["required"] = judged.json;
    list.back()["met"] = judged.met;
  }
  if (args.json) {
    EmitJson(OneOrAll(std::move(list)));
  } else {
    Emit(args.csv ? CsvText(all, reports) : text);
  }
  return met ? kFine : kAnswerIsNo;
}

}  // namespace

void AddCheck(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "check", "Measure what encodings can do: a number and a verdict each.");
  command->footer(
      "Examples:\n  locus check rope -o base=500000 --require relative=yes\n"
      "  locus check alibi 'kerple{kind=power}' rope\n\n"
      "JSON: {encoding, config, properties: [{name, question, verdict, value, "
      "measure,\nthreshold, sentence}], required: [{property, required, found, "
      "met}], met};\nof several encodings: {encodings: [...]}, one such object "
      "each.\nCSV: encoding, property, verdict, value, threshold, measure, "
      "sentence.");
  auto args = std::make_shared<Args>();
  args->encoding.AddTo(*command);
  command
      ->add_option("--require", args->require,
                   "PROPERTY=yes|no: exit with 1 unless so; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", args->json, "print a JSON object");
  command->add_flag("--csv", args->csv,
                    "print a row per encoding and property");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli

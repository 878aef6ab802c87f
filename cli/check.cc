// locus check ENCODING: its properties, each a number and a verdict.
#include "locus/check.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/app.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

struct Args {
  EncodingArgs encoding = {};
  std::vector<std::string> require = {};
  bool json = false;
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
  // Widths of property, verdict and number; the finding has the rest.
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

Json ReportJson(const ExampleConfig& config, const CheckReport& report) {
  Json properties = Json::array();
  for (const Property& p : report.properties) {
    properties.push_back({{"name", p.name},
                          {"question", p.question},
                          {"verdict", VerdictName(p.verdict)},
                          {"value", NumberJson(p.value)},
                          {"measure", p.measure},
                          {"threshold", NumberJson(p.threshold)},
                          {"sentence", p.sentence}});
  }
  return {{"encoding", report.encoding},
          {"config", ConfigJson(config)},
          {"properties", properties}};
}

int Run(const Args& args) {
  const EncodingInfo& info = FindEncoding(args.encoding.name);
  const ExampleConfig config = args.encoding.Config();
  std::vector<Requirement> required;
  for (const std::string& text : args.require) {
    required.push_back(ReadRequirement(text));
  }
  const CheckReport report = Check(info, config);
  std::string text = ReportText(info, report);
  Json json = ReportJson(config, report);
  Json checked = Json::array();
  bool met = true;
  if (!required.empty()) text += '\n';
  for (const Requirement& r : required) {
    const Verdict found = report.Find(r.property).verdict;
    const bool holds = found == r.verdict;
    met = met && holds;
    text += fmt::format(
        "required {} = {}: {}\n", r.property, VerdictName(r.verdict),
        holds ? "holds" : fmt::format("found {}", VerdictName(found)));
    checked.push_back({{"property", r.property},
                       {"required", VerdictName(r.verdict)},
                       {"found", VerdictName(found)},
                       {"met", holds}});
  }
  json["required"] = checked;
  json["met"] = met;
  if (args.json) {
    EmitJson(json);
  } else {
    Emit(text);
  }
  return met ? kFine : kAnswerIsNo;
}

}  // namespace

void AddCheck(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "check", "Measure what an encoding can do: a number and a verdict each.");
  command->footer(
      "Example:\n  locus check rope -o base=500000 --require relative=yes\n\n"
      "JSON: {encoding, config, properties: [{name, question, verdict, value, "
      "measure,\nthreshold, sentence}], required: [{property, required, found, "
      "met}], met}");
  auto args = std::make_shared<Args>();
  args->encoding.AddTo(*command);
  command
      ->add_option("--require", args->require,
                   "PROPERTY=yes|no: exit with 1 unless so; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", args->json, "print a JSON object");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli

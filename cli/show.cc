// locus show ENCODING...: pictures of encodings, side by side in a file.
#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "cli/answers/figure.h"
#include "cli/app.h"
#include "cli/csv.h"
#include "cli/plot.h"
#include "cli/trained.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

struct Args {
  EncodingArgs encoding = {};
  std::string out = {};
  std::string trained = {};
  std::string colour = "auto";
  bool terminal = false;
  bool terms = false;
  bool options = false;
  bool json = false;
  bool csv = false;
};

// NO_COLOR (no-color.org): set and not empty means no colours.
Colours ColoursFor(const std::string& wish) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  const bool plain =
      (no_color != nullptr && *no_color != '\0') || dumb || !StdoutIsTerminal();
  if (wish == "never" || (wish == "auto" && plain)) return Colours::kNone;
  const char* depth = std::getenv("COLORTERM");
  const bool deep =
      depth != nullptr && (std::string_view(depth) == "24bit" ||
                           std::string_view(depth) == "truecolor");
  return deep ? Colours::k24Bit : Colours::k256;
}

// One row per number: curves have no y, and heat maps no series.
void AddCsv(const std::string& name, const HeatMap& map, std::string& text) {
  for (size_t r = 0; r < map.values.size(); ++r) {
    for (size_t c = 0; c < map.values[r].size(); ++c) {
      text += CsvLine({CsvCell(name), CsvCell(map.title), "",
                       CsvCell(map.first_x + static_cast<double>(c)),
                       CsvCell(map.first_y + static_cast<double>(r)),
                       CsvCell(map.values[r][c])});
    }
  }
}

void AddCsv(const std::string& name, const Curves& panel, std::string& text) {
  const auto add = [&](const std::string& label, const std::vector<double>& y) {
    for (size_t n = 0; n < y.size(); ++n) {
      text += CsvLine({CsvCell(name), CsvCell(panel.title), CsvCell(label),
                       CsvCell(panel.x[n]), "", CsvCell(y[n])});
    }
  };
  for (const Curve& curve : panel.curves) add(curve.label, curve.y);
  add(panel.band_label + " (lowest)", panel.band_low);
  add(panel.band_label + " (highest)", panel.band_high);
}

int ShowOptions(const Args& args, const std::vector<Chosen>& all) {
  Json list = Json::array();
  std::string text;
  for (const Chosen& chosen : all) {
    const EncodingInfo& info = *chosen.info;
    list.push_back({{"encoding", info.name},
                    {"options", FieldsJson(info.options)},
                    {"variants", info.variants}});
    text += (text.empty() ? "" : "\n") + OptionsHelp(info);
  }
  if (args.json) {
    EmitJson(OneOrAll(std::move(list)));
  } else {
    Emit(text);
  }
  return kFine;
}

int Run(const Args& args) {
  const std::vector<Chosen> all = args.encoding.Read();
  if (args.options) return ShowOptions(args, all);
  if (args.csv && args.json) {
    throw Error("--csv and --json exclude each other");
  }
  std::vector<Figure> figures;
  Json list = Json::array();
  const bool draw = args.out.empty() || args.terminal;
  std::string text;
  std::string csv = CsvLine({"encoding", "panel", "series", "x", "y", "value"});
  std::optional<TrainedFile> trained;
  if (!args.trained.empty()) trained.emplace(args.trained);
  for (const Chosen& wanted : all) {
    const Chosen chosen = trained ? trained->Resized(wanted) : wanted;
    const EncodingInfo& info = *chosen.info;
    const auto encoding =
        trained ? trained->Build(chosen) : info.example(chosen.config);
    const Terms terms = encoding->Lower(ShapeOf(chosen.config)).terms;
    Validate(terms, ShapeOf(chosen.config));
    figures.push_back(MakeFigure(info, *encoding, chosen.config,
                                 trained ? trained->Note(chosen) : ""));
    Figure& figure = figures.back();
    if (all.size() > 1) figure.title = chosen.name;
    for (const Panel& panel : figure.panels) {
      std::visit([&](const auto& p) { AddCsv(chosen.name, p, csv); }, panel);
    }
    list.push_back(ShowJson(chosen, terms, figure));
    list.back()["out"] = args.out.empty() ? Json(nullptr) : Json(args.out);
    if (draw || args.terms) {
      text += fmt::format("{}{}: {}\n{}\n", text.empty() ? "" : "\n",
                          chosen.name, info.title, info.formula);
    }
    if (args.terms) text += fmt::format("\n{}", Describe(terms));
    if (draw) {
      text += DrawText(figure, TerminalWidth(), ColoursFor(args.colour));
    }
  }
  if (!args.out.empty()) DrawFile(figures, args.out);
  if (args.json) {
    EmitJson(OneOrAll(std::move(list)));
  } else if (args.csv) {
    Emit(csv);
  } else {
    EmitColoured(text);
  }
  return kFine;
}

}  // namespace

void AddShow(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "show",
      "Draw encodings: into the terminal, or side by side as a PNG, SVG or PDF "
      "file.");
  command->footer(
      "Examples:\n  locus show sinusoidal\n  locus show rope --options\n"
      "  locus show rope -o base=500000 --length 512 --out rope.svg\n"
      "  locus show 'rope{base=100}' 'rope{base=500000}' alibi --out "
      "three.pdf\n"
      "  locus show t5 --trained web/data/trained.json\n"
      "  locus show alibi kerple --csv > biases.csv\n\n"
      "JSON: {encoding, title, formula, config, terms, description, picture, "
      "panels, out};\na panel is {kind: heatmap, title, x_label, y_label, "
      "value_label, first_x, first_y,\nvalues} or {kind: curves, title, "
      "x_label, y_label, x, curves: [{label, y}],\nband: {label, low, high}}. "
      "With --options: {encoding, options, variants}, see locus list --help.\n"
      "Of several encodings: {encodings: [...]}, one such object each.\n"
      "CSV: encoding, panel, series, x, y, value; curves have a series and no "
      "y,\nheat maps a y and no series.");
  auto args = std::make_shared<Args>();
  args->encoding.AddTo(*command);
  command->add_option("--out", args->out,
                      "write the picture: FILE.png, .svg or .pdf");
  CLI::Option* trained = command->add_option(
      "--trained", args->trained,
      "draw the trained parameters in FILE (web/data/trained.json), at the "
      "sizes they have");
  for (const char* size : {"--heads", "--dim", "--length"}) {
    trained->excludes(command->get_option(size));
  }
  command->add_flag("--terminal", args->terminal,
                    "draw into the terminal as well as to --out");
  command->add_option("--color", args->colour, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->add_flag("--terms", args->terms, "print what it lowers to");
  command->add_flag("--options", args->options,
                    "print the options that -o takes, and draw nothing");
  command->add_flag("--json", args->json, "print the picture's data as JSON");
  command->add_flag("--csv", args->csv, "print the picture's data as CSV");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli

// locus show ENCODING: a picture of it.
#include <fmt/format.h>

#include <cstdlib>

#include "cli/app.h"
#include "cli/figure.h"
#include "cli/names.h"
#include "cli/plot.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

struct Args {
  EncodingArgs encoding = {};
  std::string out = {};
  std::string colour = "auto";
  bool terminal = false;
  bool terms = false;
  bool json = false;
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

Json PanelJson(const HeatMap& map) {
  return {{"kind", "heatmap"},
          {"title", map.title},
          {"x_label", map.x_label},
          {"y_label", map.y_label},
          {"value_label", map.value_label},
          {"first_x", map.first_x},
          {"first_y", map.first_y},
          {"values", map.values}};
}

Json PanelJson(const Curves& panel) {
  Json curves = Json::array();
  for (const Curve& c : panel.curves) {
    curves.push_back({{"label", c.label}, {"y", c.y}});
  }
  Json json = {{"kind", "curves"},
               {"title", panel.title},
               {"x_label", panel.x_label},
               {"y_label", panel.y_label},
               {"x", panel.x},
               {"curves", curves},
               {"band", nullptr}};
  if (!panel.band_low.empty()) {
    json["band"] = {{"label", panel.band_label},
                    {"low", panel.band_low},
                    {"high", panel.band_high}};
  }
  return json;
}

int Run(const Args& args) {
  const EncodingInfo& info = FindEncoding(args.encoding.name);
  const ExampleConfig config = args.encoding.Config();
  const auto encoding = info.example(config);
  const Terms terms = encoding->Lower(ShapeOf(config)).terms;
  Validate(terms, ShapeOf(config));
  const Figure figure = MakeFigure(info, *encoding, config);
  if (!args.out.empty()) DrawFile(figure, args.out);
  if (args.json) {
    Json panels = Json::array();
    for (const Panel& panel : figure.panels) {
      panels.push_back(
          std::visit([](const auto& p) { return PanelJson(p); }, panel));
    }
    EmitJson({{"encoding", info.name},
              {"title", info.title},
              {"formula", info.formula},
              {"config", ConfigJson(config)},
              {"terms", TermNames(terms)},
              {"description", Describe(terms)},
              {"picture", PictureName(info.picture)},
              {"panels", panels},
              {"out", args.out.empty() ? Json(nullptr) : Json(args.out)}});
    return kFine;
  }
  const bool draw = args.out.empty() || args.terminal;
  std::string text;
  if (draw || args.terms) {
    text += fmt::format("{}: {}\n{}\n", info.name, info.title, info.formula);
  }
  if (args.terms) text += fmt::format("\n{}", Describe(terms));
  if (draw) {
    text += DrawText(figure, TerminalWidth(), ColoursFor(args.colour));
  }
  EmitColoured(text);
  return kFine;
}

}  // namespace

void AddShow(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "show", "Draw an encoding: into the terminal, or as a PNG or SVG file.");
  command->footer(
      "Examples:\n  locus show sinusoidal\n"
      "  locus show rope -o base=500000 --length 512 --out rope.svg\n\n"
      "JSON: {encoding, title, formula, config, terms, description, picture, "
      "panels, out};\na panel is {kind: heatmap, title, x_label, y_label, "
      "value_label, first_x, first_y,\nvalues} or {kind: curves, title, "
      "x_label, y_label, x, curves: [{label, y}],\nband: {label, low, high}}.");
  auto args = std::make_shared<Args>();
  args->encoding.AddTo(*command);
  command->add_option("--out", args->out,
                      "write the picture: FILE.png or .svg");
  command->add_flag("--terminal", args->terminal,
                    "draw into the terminal as well as to --out");
  command->add_option("--color", args->colour, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->add_flag("--terms", args->terms, "print what it lowers to");
  command->add_flag("--json", args->json, "print the picture's data as JSON");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli

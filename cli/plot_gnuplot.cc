// Figures as PNG and SVG: a gnuplot script with its data inline.
#include "cli/plot.h"

#include <fmt/format.h>

#include "cli/gnuplot.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

// Lines that are told apart by hue and by lightness, also in grey.
constexpr const char* kLineColours[] = {"#20507a", "#d1603d", "#2f8f6b",
                                        "#8c4a9e", "#c79a2b", "#3fa0c8",
                                        "#a03050", "#6b7280"};

// Signed values: blue through white to red. Others: dark to light.
constexpr const char* kDiverging =
    "set palette defined (-1 '#14396b', -0.6 '#3b7fb8', -0.25 '#a9cfe4', "
    "0 '#f7f7f5', 0.25 '#f5c0a3', 0.6 '#cf5a47', 1 '#7a1428')\n";
constexpr const char* kSequential =
    "set palette defined (0 '#1b1238', 0.25 '#3f3f86', 0.5 '#2a7f8e', "
    "0.75 '#5cbf75', 1 '#f4e86b')\n";

// A gnuplot string: single quotes, doubled inside.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + "'";
}

std::string Labels(const std::string& title, const std::string& x,
                   const std::string& y) {
  return fmt::format("set title {} font ',14'\nset xlabel {}\nset ylabel {}\n",
                     Quoted(title), Quoted(x), Quoted(y));
}

std::string Script(const HeatMap& map, size_t panel) {
  std::string s = fmt::format("$data{} << EOD\n", panel);
  for (const auto& row : map.values) {
    for (double v : row) s += fmt::format("{:.6g} ", v);
    s += '\n';
  }
  s += "EOD\n";
  const double rows = static_cast<double>(map.values.size());
  const double columns = static_cast<double>(map.values[0].size());
  const double largest = map.Largest();
  s += Labels(map.title, map.x_label, map.y_label);
  s += map.HasNegative() ? kDiverging : kSequential;
  s += fmt::format("set cbrange [{}:{}]\nset cblabel {}\nset colorbox\n",
                   map.HasNegative() ? -largest : 0.0, largest,
                   Quoted(map.value_label));
  s += fmt::format("set xrange [{}:{}]\nset yrange [{}:{}]\nunset grid\n",
                   map.first_x - 0.5, map.first_x + columns - 0.5,
                   map.first_y - 0.5, map.first_y + rows - 0.5);
  s += fmt::format(
      "plot $data{} matrix using ($1+({})):($2+({})):3 with image notitle\n",
      panel, map.first_x, map.first_y);
  return s;
}

std::string Script(const Curves& panel, size_t number) {
  const bool band = !panel.band_low.empty();
  std::string s = fmt::format("$data{} << EOD\n", number);
  for (size_t n = 0; n < panel.x.size(); ++n) {
    s += fmt::format("{:.6g}", panel.x[n]);
    if (band) {
      s += fmt::format(" {:.6g} {:.6g}", panel.band_low[n], panel.band_high[n]);
    }
    for (const Curve& c : panel.curves) s += fmt::format(" {:.6g}", c.y[n]);
    s += '\n';
  }
  s += "EOD\n";
  s += Labels(panel.title, panel.x_label, panel.y_label);
  s += fmt::format(
      "set xrange [{}:{}]\nset yrange [*:*]\nset offsets 0, 0, graph 0.04, "
      "graph 0.04\nset grid lc '#dddddd' lw 1 lt 1\n"
      "set key outside right top Left reverse samplen 2 noenhanced\n",
      panel.x.front(), panel.x.back());
  s += "plot ";
  if (band) {
    s += fmt::format(
        "$data{} using 1:2:3 with filledcurves fc '#dfe5ea' title {}, ", number,
        Quoted(panel.band_label));
  }
  constexpr size_t kColours = std::size(kLineColours);
  for (size_t c = 0; c < panel.curves.size(); ++c) {
    s += fmt::format("{}$data{} using 1:{} with lines lw 2.2 lc '{}' title {}",
                     c == 0 ? "" : ", ", number, (band ? 4 : 2) + c,
                     kLineColours[c % kColours], Quoted(panel.curves[c].label));
  }
  return s + "\n";
}

std::string Script(const Figure& figure, const std::string& terminal,
                   const std::string& path) {
  std::string s =
      fmt::format("set terminal {}\nset output {}\n", terminal, Quoted(path));
  s += "set tics nomirror out\nset border 3 lc '#555555'\n"
       "set tics textcolor '#333333'\n";
  // The formula stands under the title, for the whole figure.
  s += fmt::format(
      "set label 1 {} at screen 0.5, 0.965 center font ',20' front\n"
      "set label 2 {} at screen 0.5, 0.918 center font 'DejaVu Sans "
      "Mono,13' textcolor '#555555' front\n",
      Quoted(figure.title), Quoted(figure.formula));
  const size_t panels = figure.panels.size();
  s += "set multiplot\n";
  for (size_t n = 0; n < panels; ++n) {
    // Panels from top to bottom, below the title.
    constexpr double kTop = 0.90;
    const double height = kTop / static_cast<double>(panels);
    s += fmt::format("set size 1, {}\nset origin 0, {}\n", height,
                     kTop - height * static_cast<double>(n + 1));
    s += std::visit([&](const auto& p) { return Script(p, n); },
                    figure.panels[n]);
    s += "unset label 1\nunset label 2\n";
  }
  return s + "unset multiplot\nunset output\n";
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

void DrawFile(const Figure& figure, const std::string& path) {
  std::string terminal;
  // Two panels are taller than one.
  const int height = figure.panels.size() > 1 ? 1000 : 760;
  if (EndsWith(path, ".png")) {
    terminal = fmt::format(
        "pngcairo size 1200,{} font 'DejaVu Sans,13' noenhanced background "
        "'#ffffff'",
        height);
  } else if (EndsWith(path, ".svg")) {
    terminal = fmt::format(
        "svg size 1200,{} font 'DejaVu Sans,13' noenhanced background "
        "'#ffffff'",
        height);
  } else {
    throw Error(
        fmt::format("--out must name a .png or .svg file, got '{}'", path));
  }
  RunGnuplot(path, [&](const std::string& beside) {
    return Script(figure, terminal, beside);
  });
}

}  // namespace locus::cli

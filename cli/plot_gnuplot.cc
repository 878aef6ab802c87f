// Figures as PNG, SVG and PDF: a gnuplot script with its data inline.
#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/gnuplot.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

// Colours that differ in hue and in lightness, so lines are distinguishable in
// grey.
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

// A gnuplot string: in single quotes, which are doubled inside.
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
  // A single point needs a range around it.
  const bool single = panel.x.front() == panel.x.back();
  const double low = panel.x.front() - (single ? 0.5 : 0.0);
  const double high = panel.x.back() + (single ? 0.5 : 0.0);
  s += fmt::format(
      "{}\nset xrange [{}:{}]\nset yrange [*:*]\nset offsets 0, 0, graph "
      "0.04, graph 0.04\nset grid lc '#dddddd' lw 1 lt 1\n"
      "set key outside right top Left reverse samplen 2 noenhanced\n",
      panel.log_x ? "set logscale x 2" : "unset logscale x", low, high);
  s += "plot ";
  if (band) {
    s += fmt::format(
        "$data{} using 1:2:3 with filledcurves fc '#dfe5ea' title {}, ", number,
        Quoted(panel.band_label));
  }
  constexpr size_t kColours = std::size(kLineColours);
  for (size_t c = 0; c < panel.curves.size(); ++c) {
    s += fmt::format("{}$data{} using 1:{} with {} lw 2.2 lc '{}' title {}",
                     c == 0 ? "" : ", ", number, (band ? 4 : 2) + c,
                     panel.log_x ? "linespoints pt 7" : "lines",
                     kLineColours[c % kColours], Quoted(panel.curves[c].label));
  }
  return s + "\n";
}

// A part of the page, in fractions of its width and height from the bottom
// left.
struct Cell {
  double left = 0.0, bottom = 0.0, width = 1.0, height = 1.0;
};

// `first` numbers the data blocks of the panels.
std::string Script(const Figure& figure, const Cell& cell, size_t first) {
  // The formula is below the title, for the whole figure.
  std::string s = fmt::format(
      "set label 1 {} at screen {}, {} center font ',20' front\n"
      "set label 2 {} at screen {}, {} center font 'DejaVu Sans "
      "Mono,13' textcolor '#555555' front\n",
      Quoted(figure.title), cell.left + 0.5 * cell.width,
      cell.bottom + 0.965 * cell.height, Quoted(figure.formula),
      cell.left + 0.5 * cell.width, cell.bottom + 0.918 * cell.height);
  const size_t panels = figure.panels.size();
  for (size_t n = 0; n < panels; ++n) {
    // Panels from top to bottom, below the title.
    constexpr double kTop = 0.90;
    const double height = kTop * cell.height / static_cast<double>(panels);
    const double top = cell.bottom + kTop * cell.height;
    s += fmt::format("set size {}, {}\nset origin {}, {}\n", cell.width, height,
                     cell.left, top - height * static_cast<double>(n + 1));
    s += std::visit([&](const auto& p) { return Script(p, first + n); },
                    figure.panels[n]);
    s += "unset label 1\nunset label 2\n";
  }
  return s;
}

// Three figures in a row are still legible.
constexpr size_t kMostColumns = 3;

std::string Script(std::span<const Figure> figures, const std::string& terminal,
                   const std::string& path) {
  std::string s =
      fmt::format("set terminal {}\nset output {}\n", terminal, Quoted(path));
  s += "set tics nomirror out\nset border 3 lc '#555555'\n"
       "set tics textcolor '#333333'\nset multiplot\n";
  const size_t columns = std::min(figures.size(), kMostColumns);
  const size_t rows = (figures.size() + columns - 1) / columns;
  const double width = 1.0 / static_cast<double>(columns);
  const double height = 1.0 / static_cast<double>(rows);
  size_t panels = 0;
  for (size_t n = 0; n < figures.size(); ++n) {
    const size_t row = n / columns;
    const Cell cell = {.left = width * static_cast<double>(n % columns),
                       .bottom = 1.0 - height * static_cast<double>(row + 1),
                       .width = width,
                       .height = height};
    s += Script(figures[n], cell, panels);
    panels += figures[n].panels.size();
  }
  return s + "unset multiplot\nunset output\n";
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

void DrawFile(std::span<const Figure> figures, const std::string& path) {
  // Two panels are taller than one, and adjacent figures narrower than a single
  // one.
  size_t panels = 1;
  for (const Figure& f : figures) panels = std::max(panels, f.panels.size());
  const size_t columns = std::min(figures.size(), kMostColumns);
  const size_t rows = (figures.size() + columns - 1) / columns;
  const size_t width = columns == 1 ? 1200 : 900 * columns;
  const size_t height = (panels > 1 ? 1000 : 760) * rows;
  const std::string look =
      "font 'DejaVu Sans,13' noenhanced background '#ffffff'";
  std::string terminal;
  if (EndsWith(path, ".png")) {
    terminal = fmt::format("pngcairo size {},{} {}", width, height, look);
  } else if (EndsWith(path, ".svg")) {
    terminal = fmt::format("svg size {},{} {}", width, height, look);
  } else if (EndsWith(path, ".pdf")) {
    // 100 pixels per inch, with text and lines in proportion, which this
    // terminal would otherwise draw at half the size.
    terminal =
        fmt::format("pdfcairo size {}in,{}in fontscale 0.75 linewidth 2 {}",
                    static_cast<double>(width) / 100,
                    static_cast<double>(height) / 100, look);
  } else {
    throw Error(fmt::format(
        "--out must name a .png, .svg or .pdf file, got '{}'", path));
  }
  RunGnuplot(path, [&](const std::string& beside) {
    return Script(figures, terminal, beside);
  });
}

}  // namespace locus::cli

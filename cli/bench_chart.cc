// The chart of `locus bench`: one panel per direction, one group of bars per
// encoding, and a dashed line for plain attention.
#include <fmt/format.h>

#include <algorithm>

#include "cli/bench.h"
#include "cli/gnuplot.h"
#include "locus/error.h"
#include "locus/simd.h"

namespace locus::cli {
namespace {

using bench::Direction;
using bench::SpeedRow;

// Colours of bars and of the line for plain attention; distinguishable in grey.
struct Ink {
  bool causal;
  const char* name;
  const char* bar;
  const char* line;
};
constexpr Ink kInks[] = {{false, "full", "#20507a", "#14396b"},
                         {true, "causal", "#e39a7d", "#b4441f"}};

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::vector<SpeedRow> Select(const std::vector<SpeedRow>& rows,
                             Direction direction, bool causal) {
  std::vector<SpeedRow> chosen;
  for (const SpeedRow& row : rows) {
    if (row.direction == direction && row.spec.causal == causal) {
      chosen.push_back(row);
    }
  }
  return chosen;
}

// One data block and one plot. Bar `b` of `bars` of encoding n is near x = n;
// whiskers are the minimum and maximum of the runs.
std::string Panel(const std::vector<SpeedRow>& rows, Direction direction) {
  std::string data, plot, tics;
  std::vector<const Ink*> inks;
  for (const Ink& ink : kInks) {
    if (!Select(rows, direction, ink.causal).empty()) inks.push_back(&ink);
  }
  constexpr double kGroup = 0.76;  // of the space between two encodings
  const double width = kGroup / static_cast<double>(inks.size());
  size_t count = 0;
  for (size_t b = 0; b < inks.size(); ++b) {
    const Ink& ink = *inks[b];
    const std::string block =
        fmt::format("${}_{}", bench::DirectionName(direction), ink.name);
    const auto chosen = Select(rows, direction, ink.causal);
    count = chosen.size();
    data += fmt::format("{} << EOD\n", block);
    for (size_t n = 0; n < count; ++n) {
      const double x = static_cast<double>(n) - kGroup / 2.0 +
                       width * (static_cast<double>(b) + 0.5);
      data += fmt::format("{} {} {} {}\n", x, chosen[n].of_peak.median,
                          chosen[n].of_peak.low, chosen[n].of_peak.high);
      if (b == 0) {
        tics += fmt::format("{}'{}' {}", n == 0 ? "" : ", ",
                            n == 0 ? "plain" : chosen[n].spec.Name(), n);
      }
    }
    data += "EOD\n";
    plot += fmt::format(
        "{0}{1} using 1:2:({2}) with boxes fc '{3}' title '{4}', "
        "{1} using 1:3:(0):($4-$3) with vectors nohead lw 1.4 lc '#333333' "
        "notitle, "
        "{5} with lines dt 2 lw 1.6 lc '{6}' title 'plain, {4}'",
        b == 0 ? "" : ", ", block, width * 0.94, ink.bar, ink.name,
        chosen.front().of_peak.median, ink.line);
  }
  // As many names as fit side by side.
  constexpr size_t kUpright = 10;
  return fmt::format(
      "{}set title '{}' font ',14'\nset xtics {} ({}) scale 0\n"
      "set xrange [-0.6:{}]\nplot {}\n",
      data, bench::DirectionName(direction),
      count > kUpright ? "rotate by -30" : "norotate", tics,
      static_cast<double>(count) - 0.4, plot);
}

std::string Script(const BenchPlan& plan, const std::vector<SpeedRow>& rows,
                   const std::string& terminal, const std::string& path) {
  const bench::CallSpec& spec = rows.front().spec;
  // Above 1 only if the limit was measured at a bad moment; shown in that case.
  double highest = 1.0;
  for (const SpeedRow& row : rows) {
    highest = std::max(highest, row.of_peak.high * 1.05);
  }
  std::string s = fmt::format(
      "set terminal {}\nset output '{}'\nset tics nomirror out\n"
      "set border 3 lc '#555555'\nset tics textcolor '#333333'\n"
      "set label 1 'What position costs in attention' at screen 0.5, 0.965 "
      "center font ',20' front\n"
      "set label 2 '[1, {}, {}, {}] {}, {} thread{}, {}; median, least and "
      "most' at screen 0.5, 0.93 center font 'DejaVu Sans Mono,13' textcolor "
      "'#555555' front\n"
      "set style fill solid 1 noborder\nset grid ytics lc '#dddddd' lw 1 lt 1\n"
      "set ylabel 'of the multiply-add rate'\nset yrange [0:{}]\n"
      "set ytics 0.2 format '%.1f'\n"
      "set key outside right top Left reverse samplen 2 noenhanced\n"
      "set multiplot\n",
      terminal, path, spec.heads, spec.length, spec.dim, DTypeName(spec.dtype),
      plan.threads, plan.threads == 1 ? "" : "s", SimdTarget(), highest);
  constexpr double kTop = 0.91;
  double bottom = kTop;
  for (const Direction direction :
       {Direction::kForward, Direction::kBackward}) {
    bottom -= kTop / 2.0;
    s += fmt::format("set size 1, {}\nset origin 0, {}\n", kTop / 2.0, bottom);
    s += Panel(rows, direction);
    s += "unset label 1\nunset label 2\n";
  }
  return s + "unset multiplot\nunset output\n";
}

}  // namespace

void CheckChartName(const std::string& path) {
  if (!EndsWith(path, ".png") && !EndsWith(path, ".svg")) {
    throw Error(
        fmt::format("--chart must name a .png or .svg file, got '{}'", path));
  }
}

void DrawSpeeds(const BenchPlan& plan, const std::vector<SpeedRow>& rows,
                const std::string& path) {
  const std::string terminal = fmt::format(
      "{} size 1200,900 font 'DejaVu Sans,13' noenhanced background '#ffffff'",
      EndsWith(path, ".png") ? "pngcairo" : "svg");
  RunGnuplot(path, [&](const std::string& beside) {
    return Script(plan, rows, terminal, beside);
  });
}

}  // namespace locus::cli

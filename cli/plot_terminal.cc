// Figures as text: half blocks and Braille with colours, plain ASCII without.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot.h"

namespace locus::cli {
namespace {

struct Rgb {
  double r = 0, g = 0, b = 0;
};

// A palette: colours at evenly spaced stops of [0, 1].
Rgb At(const std::vector<Rgb>& stops, double share) {
  const double at =
      std::clamp(share, 0.0, 1.0) * static_cast<double>(stops.size() - 1);
  const size_t low = std::min(static_cast<size_t>(at), stops.size() - 2);
  const double f = at - static_cast<double>(low);
  const auto mix = [f](double a, double b) { return a + f * (b - a); };
  const Rgb &a = stops[low], &b = stops[low + 1];
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)};
}

const std::vector<Rgb> kDiverging = {{20, 57, 107},
                                     {120, 175, 212},
                                     {247, 247, 245},
                                     {226, 140, 117},
                                     {122, 20, 40}};
const std::vector<Rgb> kSequential = {{27, 18, 56},
                                      {63, 63, 134},
                                      {42, 127, 142},
                                      {92, 191, 117},
                                      {244, 232, 107}};
const std::vector<Rgb> kCurveColours = {
    {86, 150, 214}, {230, 120, 80}, {80, 190, 140}, {190, 120, 210},
    {225, 180, 60}, {90, 200, 230}, {220, 80, 120}, {150, 155, 165}};

// Escape sequence that sets the text (38) or background (48) colour.
std::string Escape(int ground, Rgb c, Colours colours) {
  const auto whole = [](double v) { return static_cast<int>(std::lround(v)); };
  if (colours == Colours::k24Bit) {
    return fmt::format("\x1b[{};2;{};{};{}m", ground, whole(c.r), whole(c.g),
                       whole(c.b));
  }
  // The 6 x 6 x 6 cube of the 256 colours.
  const auto six = [&](double v) { return whole(v / 255.0 * 5.0); };
  return fmt::format("\x1b[{};5;{}m", ground,
                     16 + 36 * six(c.r) + 6 * six(c.g) + six(c.b));
}

// A centred line, or nothing if the text is empty.
std::string TitleLine(const std::string& text, size_t width) {
  if (text.empty()) return "";
  const size_t left = text.size() < width ? (width - text.size()) / 2 : 0;
  return fmt::format("{:{}}{}\n", "", left, text);
}

// Left end, right end and, between them, a label.
std::string AxisLine(double first, double last, const std::string& label,
                     size_t width) {
  const std::string from = fmt::format("{:g}", first);
  const std::string to = fmt::format("{:g}", last);
  const size_t used = from.size() + to.size() + label.size();
  if (used + 4 > width) return label;
  const size_t middle = (width - label.size()) / 2;
  return fmt::format("{:<{}}{}{:>{}}", from, middle, label, to,
                     width - middle - label.size());
}

// The value of output cell (row, x) of rows x columns: a mean along the row.
// Rows are sampled rather than averaged, since neighbouring channels may be
// sine and cosine.
double Shrunk(const HeatMap& map, size_t row, size_t x, size_t rows,
              size_t columns) {
  const auto span = [](size_t n, size_t of, size_t total) {
    const size_t from = n * total / of;
    return std::pair(from, std::max(from + 1, (n + 1) * total / of));
  };
  const size_t y = row * map.values.size() / rows;
  const auto [x0, x1] = span(x, columns, map.values[0].size());
  double sum = 0.0;
  for (size_t c = x0; c < x1; ++c) sum += map.values[y][c];
  return sum / static_cast<double>(x1 - x0);
}

constexpr size_t kMargin = 9;  // columns for the numbers of the y axis

// The y axis beside a row of the picture: numbers at the ends and in the
// middle.
std::string Margin(size_t row, size_t rows, double top, double bottom) {
  const bool labelled = row == 0 || row + 1 == rows || row == rows / 2;
  if (!labelled) return std::string(kMargin, ' ');
  const double share =
      rows > 1 ? static_cast<double>(row) / static_cast<double>(rows - 1) : 0.0;
  // Adding zero turns -0 into 0.
  return fmt::format("{:>{}.3g} ", top + share * (bottom - top) + 0.0,
                     kMargin - 1);
}

std::string Draw(const HeatMap& map, size_t width, Colours colours) {
  // As many rows as fit on a screen with their labels.
  constexpr size_t kMostRows = 32;
  const size_t columns = std::min(width - kMargin, map.values[0].size());
  const bool two_a_line = colours != Colours::kNone;
  size_t lines = std::min(
      kMostRows, two_a_line ? (map.values.size() + 1) / 2 : map.values.size());
  const size_t rows =
      std::min(map.values.size(), two_a_line ? 2 * lines : lines);
  const double largest = map.Largest();
  const bool centred = map.HasNegative();
  const auto share = [&](size_t y, size_t x) {
    const double v = Shrunk(map, y, x, rows, columns) / largest;
    return centred ? (v + 1.0) / 2.0 : v;
  };
  const auto colour = [&](size_t y, size_t x) {
    return At(centred ? kDiverging : kSequential, share(y, x));
  };
  // From the lowest value to the highest; blank for the lowest.
  static constexpr std::string_view kShades = " .:-=+*#%@";
  const double last_y =
      map.first_y + static_cast<double>(map.values.size() - 1);
  std::string text = TitleLine(map.title, width);
  text += fmt::format("{:>{}}\n", map.y_label, kMargin);
  for (size_t line = 0; line < lines; ++line) {
    text += Margin(line, lines, last_y, map.first_y);
    for (size_t x = 0; x < columns; ++x) {
      if (!two_a_line) {
        const double s = share(rows - 1 - line, x);
        text += kShades[static_cast<size_t>(
            std::lround(s * static_cast<double>(kShades.size() - 1)))];
        continue;
      }
      // The last row is at the top: y increases upwards.
      const size_t upper = rows - 1 - 2 * line;
      text += Escape(38, colour(upper, x), colours);
      if (upper > 0) text += Escape(48, colour(upper - 1, x), colours);
      text += "\u2580";
    }
    text += two_a_line ? "\x1b[0m\n" : "\n";
  }
  const double last_x =
      map.first_x + static_cast<double>(map.values[0].size() - 1);
  text += std::string(kMargin, ' ') +
          AxisLine(map.first_x, last_x, map.x_label, columns) + "\n";
  // The scale: all colours or shades, between their numbers.
  text += fmt::format("{}{}: {:.3g} ", std::string(kMargin, ' '),
                      map.value_label, centred ? -largest : 0.0);
  constexpr size_t kScale = 24;
  for (size_t n = 0; n < (two_a_line ? kScale : kShades.size()); ++n) {
    const double s = static_cast<double>(n) / static_cast<double>(kScale - 1);
    if (two_a_line) {
      text += Escape(48, At(centred ? kDiverging : kSequential, s), colours);
      text += " ";
    } else {
      text += kShades[n];
    }
  }
  text += fmt::format("{} {:.3g}\n", two_a_line ? "\x1b[0m" : "", largest);
  return text;
}

// One symbol per curve, without colours.
constexpr std::string_view kMarks = "*o+x#@%&";

// A canvas of dots: 2 x 4 per Braille character, or one per ASCII character.
struct Canvas {
  size_t columns, lines, dots_x, dots_y;
  std::vector<uint8_t> dots;
  std::vector<int> owner;  // the last curve in this character, or -1

  Canvas(size_t columns, size_t lines, bool braille)
      : columns(columns),
        lines(lines),
        dots_x(braille ? 2 : 1),
        dots_y(braille ? 4 : 1),
        dots(columns * lines),
        owner(columns * lines, -1) {}

  void Set(size_t x, size_t y, int curve) {
    // Bits of a Braille character by row and column of its dot.
    static constexpr std::array<std::array<uint8_t, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    const size_t cell = y / dots_y * columns + x / dots_x;
    dots[cell] |= kBits[y % dots_y][x % dots_x];
    owner[cell] = curve;
  }
};

// U+2800 + dots, in UTF-8.
std::string Braille(uint8_t dots) {
  return {static_cast<char>(0xE2), static_cast<char>(0xA0 | (dots >> 6)),
          static_cast<char>(0x80 | (dots & 0x3F))};
}

std::string Draw(const Curves& panel, size_t width, Colours colours) {
  constexpr size_t kLines = 20;
  const bool rich = colours != Colours::kNone;
  double low = INFINITY, high = -INFINITY;
  for (const Curve& c : panel.curves) {
    for (double v : c.y) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (!(high > low)) {
    low -= 1.0;
    high += 1.0;
  }
  Canvas canvas(width - kMargin, kLines, rich);
  const size_t across = canvas.columns * canvas.dots_x;
  const size_t down = canvas.lines * canvas.dots_y;
  for (size_t c = 0; c < panel.curves.size(); ++c) {
    const auto& y = panel.curves[c].y;
    const auto row_at = [&](size_t x) {
      const double at = static_cast<double>(x) /
                        static_cast<double>(across - 1) *
                        static_cast<double>(y.size() - 1);
      const size_t n = std::min(static_cast<size_t>(at), y.size() - 1);
      const size_t next = std::min(n + 1, y.size() - 1);
      const double v = y[n] + (at - static_cast<double>(n)) * (y[next] - y[n]);
      return static_cast<size_t>(std::lround((high - v) / (high - low) *
                                             static_cast<double>(down - 1)));
    };
    size_t before = row_at(0);
    for (size_t x = 0; x < across; ++x) {
      const size_t now = row_at(x);
      const auto [from, to] = std::minmax(before, now);
      for (size_t r = from; r <= to; ++r) {
        // A steep step is drawn as a line, without its first dot.
        if (r == before && now != before && x > 0) continue;
        canvas.Set(x, r, static_cast<int>(c));
      }
      before = now;
    }
  }
  std::string text = TitleLine(panel.title, width);
  text += fmt::format(" {}\n", panel.y_label);
  for (size_t line = 0; line < kLines; ++line) {
    text += Margin(line, kLines, high, low);
    std::string row;
    for (size_t x = 0; x < canvas.columns; ++x) {
      const size_t cell = line * canvas.columns + x;
      const int owner = canvas.owner[cell];
      if (owner < 0) {
        row += ' ';
      } else if (rich) {
        row += Escape(38,
                      kCurveColours[static_cast<size_t>(owner) %
                                    kCurveColours.size()],
                      colours) +
               Braille(canvas.dots[cell]);
      } else {
        row += kMarks[static_cast<size_t>(owner) % kMarks.size()];
      }
    }
    if (!rich) row.erase(row.find_last_not_of(' ') + 1);
    text += row + (rich ? "\x1b[0m\n" : "\n");
  }
  text +=
      std::string(kMargin, ' ') +
      AxisLine(panel.x.front(), panel.x.back(), panel.x_label, canvas.columns) +
      "\n" + std::string(kMargin, ' ');
  size_t used = kMargin;
  for (size_t c = 0; c < panel.curves.size(); ++c) {
    const std::string& label = panel.curves[c].label;
    if (used + label.size() + 5 > width && used > kMargin) {
      text += fmt::format("\n{:{}}", "", kMargin);
      used = kMargin;
    }
    text += rich
                ? Escape(38, kCurveColours[c % kCurveColours.size()], colours) +
                      "\u2501\u2501\x1b[0m "
                : fmt::format("{}{} ", kMarks[c % kMarks.size()],
                              kMarks[c % kMarks.size()]);
    text += label + "  ";
    used += label.size() + 5;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::string DrawText(const Figure& figure, int width, Colours colours) {
  // Wider pictures are harder to read.
  const size_t columns = static_cast<size_t>(std::clamp(width, 40, 160));
  std::string text;
  for (const Panel& panel : figure.panels) {
    text += '\n';
    text += std::visit([&](const auto& p) { return Draw(p, columns, colours); },
                       panel);
  }
  return text;
}

}  // namespace locus::cli

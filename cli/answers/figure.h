// The contents of a picture, independent of how it is drawn.
#ifndef LOCUS_CLI_ANSWERS_FIGURE_H_
#define LOCUS_CLI_ANSWERS_FIGURE_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "locus/descriptor.h"

namespace locus::cli {

// values[row][column]; row r is at y = first_y + r, column c at x = first_x +
// c.
struct HeatMap {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::string value_label = {};
  double first_x = 0.0;
  double first_y = 0.0;
  std::vector<std::vector<double>> values = {};

  double Largest() const;    // of |value|; 1 if all are zero
  bool HasNegative() const;  // then colours are centred on zero
};

struct Curve {
  std::string label = {};
  std::vector<double> y = {};
};

// Curves with a common x, and a band behind them (empty: none).
struct Curves {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<double> x = {};
  std::vector<Curve> curves = {};
  std::string band_label = {};
  std::vector<double> band_low = {};
  std::vector<double> band_high = {};
  bool log_x = false;  // logarithmic x, with powers of two
};

using Panel = std::variant<HeatMap, Curves>;

struct Figure {
  std::string title = {};
  std::string formula = {};
  std::vector<Panel> panels = {};
};

// The picture of this example, of the kind info.picture. `trained` says how a
// decoder trained the encoding's parameters; empty: they are random examples.
// Titles of panels repeat it, so that no picture of random values passes for a
// trained one. A decoder never sees later keys, which are then left out.
Figure MakeFigure(const EncodingInfo& info, const Encoding& encoding,
                  const ExampleConfig& config, std::string_view trained = {});

}  // namespace locus::cli

#endif  // LOCUS_CLI_ANSWERS_FIGURE_H_

// The encodings that rotate, as Python classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "layout.h"
#include "locus/locus.h"
#include "options.h"
#include "rope_scaling.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

constexpr Word<AngleMode> kAngles[] = {{"exact", AngleMode::kExact},
                                       {"float32", AngleMode::kFloat32}};
constexpr Word<RotaryPlace> kPlaces[] = {{"leading", RotaryPlace::kLeading},
                                         {"trailing", RotaryPlace::kTrailing}};
constexpr Word<MRopeSections> kDealings[] = {
    {"chunked", MRopeSections::kChunked},
    {"interleaved", MRopeSections::kInterleaved}};

constexpr const char* kRopeDoc =
    "Su et al. (2021): pairs of channels of q and k rotated by pos * "
    "base^(-2i / rotary_dim).\n\n"
    "layout has no default: \"interleaved\" pairs (2i, 2i + 1) or \"halves\" "
    "(i, i + rotary_dim / 2). rotary_dim: how many channels rotate, the first "
    "ones or (place=\"trailing\") the last. scaling: a dict as in config.json, "
    "such as {\"rope_type\": \"linear\", \"factor\": 4.0}; a key it does not "
    "use is a ValueError. frequencies [rotary_dim / 2]: radians per position, "
    "given. angles: \"exact\" (float64 from the integer position) or "
    "\"float32\" (as Hugging Face computes them). softmax_factor multiplies "
    "the scale of the scores (DeepSeek).";

void MakeRope(Rope* self, int64_t head_dim, const std::string& layout,
              double base, std::optional<int64_t> rotary_dim,
              const nb::object& scaling, const std::string& angles,
              const std::string& place,
              std::optional<std::vector<double>> frequencies,
              double softmax_factor, double temperature_beta,
              int64_t temperature_shift, int64_t temperature_span) {
  RopeOptions options;
  options.base = base;
  options.rotary_dim = rotary_dim.value_or(0);
  options.angles = WordOf("angles", angles, kAngles);
  options.place = WordOf("place", place, kPlaces);
  if (frequencies) options.frequencies = std::move(*frequencies);
  options.softmax_factor = softmax_factor;
  options.temperature_beta = temperature_beta;
  options.temperature_shift = temperature_shift;
  options.temperature_span = temperature_span;
  ReadScaling(scaling, options);
  new (self) Rope(head_dim, LayoutOf(layout), std::move(options));
}

}  // namespace

void BindRotations(nb::module_& m) {
  nb::class_<Rope, Encoding>(m, "Rope", kRopeDoc)
      .def("__init__", &MakeRope, "head_dim"_a, "layout"_a, "base"_a = 10000.0,
           "rotary_dim"_a = nb::none(), "scaling"_a = nb::none(),
           "angles"_a = "exact", nb::kw_only(), "place"_a = "leading",
           "frequencies"_a = nb::none(), "softmax_factor"_a = 1.0,
           "temperature_beta"_a = 0.0, "temperature_shift"_a = 0,
           "temperature_span"_a = 8192)
      .def(
          "frequencies",
          [](const Rope& self, int64_t length) {
            return self.RotationFor(length).theta;
          },
          "length"_a = 1,
          "Radians per position, [rotary_dim / 2], for sequences of `length` "
          "tokens (dynamic and longrope scalings change with it).")
      .def(
          "gain",
          [](const Rope& self, int64_t length) {
            return self.RotationFor(length).gain;
          },
          "length"_a = 1, "What multiplies cos and sin (YaRN, LongRoPE).")
      .def(
          "cos_sin",
          [](const Rope& self, const nb::object& positions, int64_t length) {
            const std::vector<int64_t> at =
                Integers("positions", positions, {{-1}});
            for (const int64_t p : at) length = std::max(length, p + 1);
            const RotaryTable table(self.RotationFor(length), at);
            return nb::make_tuple(ToNumpy(table.cos()), ToNumpy(table.sin()));
          },
          "positions"_a, "length"_a = 1,
          "cos and sin [n, rotary_dim / 2], float32, times the gain.")
      .def_prop_ro("changes_with_length", &Rope::ChangesWithLength,
                   "Whether the frequencies depend on the length: cached keys "
                   "then age, see KvCache.rerotate.");
  nb::class_<Rope2D, Encoding>(
      m, "Rope2D",
      "Axial 2-D RoPE: the first half of the pairs rotates by the row, the "
      "second by the column. Positions are raster indices y * width + x.")
      .def(
          "__init__",
          [](Rope2D* self, int64_t head_dim, const std::string& layout,
             int64_t width, double base) {
            new (self) Rope2D(head_dim, LayoutOf(layout), width, base);
          },
          "head_dim"_a, "layout"_a, "width"_a, "base"_a = 10000.0);
  nb::class_<MRope, Encoding>(
      m, "MRope",
      "M-RoPE: pairs dealt to time, height and width. sections: pairs of "
      "each, head_dim / 2 in all; dealing \"chunked\" (Qwen2-VL) or "
      "\"interleaved\" (Qwen3-VL). Positions are pack_position(t, h, w).")
      .def(
          "__init__",
          [](MRope* self, int64_t head_dim, const std::string& layout,
             std::array<int64_t, 3> sections, const std::string& dealing,
             double base) {
            new (self) MRope(head_dim, LayoutOf(layout), sections,
                             WordOf("dealing", dealing, kDealings), base);
          },
          "head_dim"_a, "layout"_a, "sections"_a, "dealing"_a = "chunked",
          "base"_a = 1e6);
  nb::class_<XPos, Encoding>(m, "XPos",
                             "Sun et al. (2022): RoPE whose pairs also decay "
                             "with the offset, ((2i / D + gamma) / (1 + "
                             "gamma))^((m - n) / scale_base).")
      .def(
          "__init__",
          [](XPos* self, int64_t head_dim, const std::string& layout,
             double base, double scale_base, double gamma) {
            new (self)
                XPos(head_dim, LayoutOf(layout),
                     {.base = base, .scale_base = scale_base, .gamma = gamma});
          },
          "head_dim"_a, "layout"_a, "base"_a = 10000.0, "scale_base"_a = 512.0,
          "gamma"_a = 0.4);
  m.def("pack_position", &PackPosition, "t"_a, "h"_a, "w"_a,
        "One int64 position from time, row and column, for MRope. Text tokens "
        "have t = h = w.");
}

}  // namespace locus::python

// The encodings that rotate, as Python classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "layout.h"
#include "locus/locus.h"
#include "memory.h"
#include "numbers.h"
#include "rope_scaling.h"
#include "settings.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

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

void MakeRope(Rope* self, const Arguments& a) {
  RopeOptions options;
  options.base = a.Real("base");
  options.rotary_dim = a.IntOrNone("rotary_dim").value_or(0);
  options.angles = a.Choice("angles", kAngles);
  options.place = a.Choice("place", kPlaces);
  options.frequencies = RealRow("frequencies", a["frequencies"]);
  options.softmax_factor = a.Real("softmax_factor");
  options.temperature_beta = a.Real("temperature_beta");
  options.temperature_shift = a.Int("temperature_shift");
  options.temperature_span = a.Int("temperature_span");
  ReadScaling(a["scaling"], options);
  new (self)
      Rope(a.Int("head_dim"), a.Choice("layout", kLayouts), std::move(options));
}

nb::object CosSin(const Rope& self, const Arguments& a) {
  const int64_t bytes =
      self.RotationFor(1).NumPairs() * static_cast<int64_t>(2 * sizeof(float));
  const std::vector<int64_t> at =
      Integers("positions", a["positions"], {{-1}}, bytes);
  int64_t length = a.Int("length");
  for (const int64_t p : at) {
    length = std::max(length, p < INT64_MAX ? p + 1 : p);
  }
  const Rotation rotation = self.RotationFor(length);
  RequireMemory("cos and sin of " + std::to_string(at.size()) + " positions",
                static_cast<int64_t>(at.size()), bytes);
  const RotaryTable table = Compute([&] { return RotaryTable(rotation, at); });
  return nb::make_tuple(ToNumpy(table.cos()), ToNumpy(table.sin()));
}

void BindRope(nb::module_& m) {
  auto rope = EncodingClass<Rope>(m, "Rope", kRopeDoc);
  Constructor(rope,
              "Rope(head_dim: int, layout: str, base: float = 10000.0, "
              "rotary_dim: int | None = None, scaling: dict | None = None, "
              "angles: str = 'exact', *, place: str = 'leading', frequencies: "
              "Sequence[float] | None = None, softmax_factor: float = 1.0, "
              "temperature_beta: float = 0.0, temperature_shift: int = 0, "
              "temperature_span: int = 8192)",
              &MakeRope);
  Method(rope, "frequencies(length: int = 1) -> list[float]",
         "Radians per position, [rotary_dim / 2], for sequences of `length` "
         "tokens (dynamic and longrope scalings change with it).",
         [](const Rope& self, const Arguments& a) {
           return self.RotationFor(a.Int("length")).theta;
         });
  Method(rope, "gain(length: int = 1) -> float",
         "What multiplies cos and sin (YaRN, LongRoPE).",
         [](const Rope& self, const Arguments& a) {
           return self.RotationFor(a.Int("length")).gain;
         });
  Method(rope, "cos_sin(positions: Any, length: int = 1) -> tuple",
         "cos and sin [n, rotary_dim / 2], float32, times the gain.", &CosSin);
  rope.def_prop_ro("changes_with_length", &Rope::ChangesWithLength,
                   "Whether the frequencies depend on the length: cached keys "
                   "then age, see KvCache.rerotate.");
}

}  // namespace

void BindRotations(nb::module_& m) {
  BindRope(m);
  auto rope_2d = EncodingClass<Rope2D>(
      m, "Rope2D",
      "Axial 2-D RoPE: the first half of the pairs rotates by the row, the "
      "second by the column. Positions are raster indices y * width + x. "
      "frequencies: \"shared\" by rows and columns (EVA-02, Qwen-VL) or "
      "\"alternating\", rows the even and columns the odd ones (Pixtral).");
  Constructor(rope_2d,
              "Rope2D(head_dim: int, layout: str, width: int, base: float = "
              "10000.0, frequencies: str = 'shared')",
              [](Rope2D* self, const Arguments& a) {
                new (self)
                    Rope2D(a.Int("head_dim"), a.Choice("layout", kLayouts),
                           a.Int("width"), a.Real("base"),
                           a.Choice("frequencies", kAxialFrequencies));
              });
  auto mrope = EncodingClass<MRope>(
      m, "MRope",
      "M-RoPE: pairs dealt to time, height and width. sections: pairs of "
      "each, head_dim / 2 in all; dealing \"chunked\" (Qwen2-VL) or "
      "\"interleaved\" (Qwen3-VL). Plain positions are text and rotate as "
      "those of Rope; tokens of images and videos are at pack_position(t, h, "
      "w).");
  Constructor(mrope,
              "MRope(head_dim: int, layout: str, sections: Sequence[int], "
              "dealing: str = 'chunked', base: float = 1000000.0)",
              [](MRope* self, const Arguments& a) {
                const std::vector<int64_t> sections =
                    Integers("sections", a["sections"], {{3}});
                new (self)
                    MRope(a.Int("head_dim"), a.Choice("layout", kLayouts),
                          {sections[0], sections[1], sections[2]},
                          a.Choice("dealing", kDealings), a.Real("base"));
              });
  auto xpos = EncodingClass<XPos>(
      m, "XPos",
      "Sun et al. (2022): RoPE whose pairs also decay with the offset, ((2i / "
      "D + gamma) / (1 + gamma))^((m - n) / scale_base).");
  Constructor(xpos,
              "XPos(head_dim: int, layout: str, base: float = 10000.0, "
              "scale_base: float = 512.0, gamma: float = 0.4)",
              [](XPos* self, const Arguments& a) {
                new (self) XPos(a.Int("head_dim"), a.Choice("layout", kLayouts),
                                {.base = a.Real("base"),
                                 .scale_base = a.Real("scale_base"),
                                 .gamma = a.Real("gamma")});
              });
  Function(m, "pack_position(t: int, h: int, w: int) -> int",
           "One int64 position from time, row and column, for MRope: 2^60 + t "
           "2^40 + h 2^20 + w. A text token p is at pack_position(p, p, p), or "
           "just at p.",
           [](const Arguments& a) {
             return PackPosition(a.Int("t"), a.Int("h"), a.Int("w"));
           });
}

}  // namespace locus::python

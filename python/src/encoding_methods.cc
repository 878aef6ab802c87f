#include "encoding_methods.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arrays.h"
#include "compute.h"
#include "locus/rotary.h"
#include "memory.h"
#include "numbers.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

constexpr Word<Resample> kResamples[] = {{"linear", Resample::kLinear},
                                         {"bicubic", Resample::kBicubic}};

// So many rows as wide as those of the table must fit in memory.
void RequireRows(const Learned& learned, int64_t rows) {
  const Tensor table = learned.Params()[0].value;
  RequireMemory("a table of " + std::to_string(rows) + " rows", rows,
                table.size(1) * static_cast<int64_t>(sizeof(double)));
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

}  // namespace

void AddMethods(nb::class_<Learned, Encoding>& learned) {
  Method(learned, "resized(length: int, kernel: str) -> Learned",
         "The table stretched or shrunk to `length` rows, by \"linear\" or "
         "\"bicubic\" (a = -0.75) interpolation as in PyTorch (align_corners = "
         "False).",
         [](const Learned& self, const Arguments& a) {
           const int64_t length = a.Int("length");
           const Resample kernel = a.Choice("kernel", kResamples);
           RequireRows(self, length);
           return self.Resized(length, kernel);
         });
  Method(learned,
         "resized_2d(from_grid: tuple[int, int], to_grid: tuple[int, int], "
         "kernel: str = 'bicubic', prefix: int = 0) -> Learned",
         "The same for a raster of (height, width) rows after `prefix` rows "
         "that stay as they are.",
         [](const Learned& self, const Arguments& a) {
           const auto from = a.IntPair("from_grid"), to = a.IntPair("to_grid");
           const Resample kernel = a.Choice("kernel", kResamples);
           const int64_t prefix = a.Int("prefix");
           int64_t rows = 0;
           if (__builtin_mul_overflow(to.first, to.second, &rows)) {
             throw nb::value_error("to_grid has more rows than int64 counts");
           }
           RequireRows(self, rows);
           return self.Resized2D({from.first, from.second},
                                 {to.first, to.second}, kernel, prefix);
         });
}

void AddMethods(nb::class_<TransformerXL, Encoding>& xl) {
  Static(xl, "sinusoidal_keys(w_r: Any, reach: int) -> Any",
         "r [heads, 2 reach - 1, D] = W_r s(m - n), with s the sinusoid of "
         "the offset ([sin, cos] halves) and w_r [heads, D, d_model].",
         [](const Arguments& a) {
           const Tensor w_r = Table("w_r", a["w_r"]);
           const int64_t reach = a.Int("reach");
           return ToNumpy(Compute(
               [&] { return TransformerXL::SinusoidalKeys(w_r, reach); }));
         });
}

void AddMethods(nb::class_<Alibi, Encoding>& alibi) {
  Static(alibi, "slopes(heads: int, bias_max: float = 8.0) -> list[float]",
         "The geometric slopes, for any number of heads, as BLOOM has them.",
         [](const Arguments& a) {
           return Alibi::Slopes(a.Int("heads"), a.Real("bias_max"));
         });
}

void AddMethods(nb::class_<Rope, Encoding>& rope) {
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

}  // namespace locus::python

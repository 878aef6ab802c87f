// rotate and rotate_with: rotation alone.
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "layout.h"
#include "locus/encoding.h"
#include "locus/encodings/rope.h"
#include "locus/encodings/rope2d.h"
#include "locus/rotary.h"
#include "locus/tensor.h"
#include "locus/terms.h"
#include "numbers.h"
#include "options.h"
#include "signature.h"

namespace locus::python {
namespace {

// x as [B, H, L, D]: axes "BHLD", "BLHD", and without leading axes ("HLD",
// "LD", "LHD").
Tensor AsHeads(const Tensor& x, const std::string& axes) {
  if (static_cast<size_t>(x.rank()) != axes.size()) {
    throw nb::value_error(("x has the shape " + x.Describe() +
                           ", which does not fit the axes \"" + axes + '"')
                              .c_str());
  }
  std::vector<int64_t> shape, strides;
  for (const char axis : {'B', 'H', 'L', 'D'}) {
    const size_t at = axes.find(axis);
    shape.push_back(at == std::string::npos ? 1 : x.shape()[at]);
    strides.push_back(at == std::string::npos ? 0 : x.strides()[at]);
  }
  return Tensor::Borrow(x.dtype(), shape, strides, x.Raw());
}

// The orders of axes that x may have.
constexpr Word<const char*> kAxes[] = {{"BHLD", "BHLD"}, {"BLHD", "BLHD"},
                                       {"HLD", "HLD"},   {"LHD", "LHD"},
                                       {"BLD", "BLD"},   {"LD", "LD"}};

std::string AxesOf(const Arguments& a, const Tensor& x) {
  if (!a["axes"].is_none()) return a.Choice("axes", kAxes);
  if (x.rank() == 4) return "BHLD";
  if (x.rank() == 3) return "HLD";
  if (x.rank() == 2) return "LD";
  throw nb::value_error(
      ("x must be [B, H, L, D], [H, L, D] or [L, D], got " + x.Describe())
          .c_str());
}

// The result of rotating [B, H, L, D] in the axes of x.
Tensor AsAxes(const Tensor& heads, const Tensor& x, const std::string& axes) {
  std::vector<int64_t> strides;
  for (const char axis : axes) {
    strides.push_back(heads.strides()[std::string("BHLD").find(axis)]);
  }
  const auto keep = std::make_shared<const Tensor>(heads);
  return Tensor::Borrow(heads.dtype(), x.shape(), strides, heads.Raw(), keep);
}

std::vector<int64_t> PositionsOf(const Arguments& a, const Tensor& heads) {
  return IntegersOrNone("positions", a["positions"],
                        {{heads.size(2)}, {heads.size(0), heads.size(2)}});
}

nb::object RotateBy(const Arguments& a) {
  const nb::object x = nb::borrow(a["x"]);
  const Encoding& encoding = EncodingOf(a["encoding"]);
  const bool inverse = a.Flag("inverse");
  const int n = a.Threads();
  const auto prepare = [&](const Tensor& in) {
    Tensor heads = AsHeads(in, AxesOf(a, in));
    std::vector<int64_t> at = PositionsOf(a, heads);
    Rotation rotation = RotationOf(encoding, heads, at);
    return std::tuple(std::move(heads), std::move(at), std::move(rotation));
  };
  if (a.Flag("inplace")) {
    Writable to("x", x);
    auto [heads, at, rotation] = prepare(to.tensor());
    ComputeWhole([&, &heads = heads, &at = at, &rotation = rotation] {
      RotateInPlace(heads, rotation, at, inverse, n);
    });
    return x;
  }
  const Borrowed in("x", x);
  const auto [heads, at, rotation] = prepare(in);
  const Tensor result =
      Compute([&, &heads = heads, &at = at, &rotation = rotation] {
        return Rotate(heads, rotation, at, inverse, n);
      });
  return ToArray(AsAxes(result, in, AxesOf(a, in)), x);
}

nb::object RotateGiven(const Arguments& a) {
  const nb::object x = nb::borrow(a["x"]);
  const Borrowed c("cos", a["cos"]), s("sin", a["sin"]);
  const PairLayout pairs = a.Choice("layout", kLayouts);
  const auto rotary_dim = a.IntOrNone("rotary_dim");
  if (rotary_dim && *rotary_dim < 1) {
    throw nb::value_error(
        ("rotary_dim must be positive, got " + std::to_string(*rotary_dim))
            .c_str());
  }
  const bool inverse = a.Flag("inverse");
  const int n = a.Threads();
  if (a.Flag("inplace")) {
    Writable to("x", x);
    Tensor heads = AsHeads(to.tensor(), AxesOf(a, to.tensor()));
    const std::vector<int64_t> at = PositionsOf(a, heads);
    ComputeWhole([&] {
      const RotaryTable table(c, s, pairs, rotary_dim.value_or(heads.size(3)));
      RotateOptions options{.rows = at, .inverse = inverse, .threads = n};
      if (at.empty()) options.first_row = 0;
      RotateInPlace(heads, table, options);
    });
    return x;
  }
  const Borrowed in("x", x);
  const Tensor heads = AsHeads(in, AxesOf(a, in));
  const std::vector<int64_t> at = PositionsOf(a, heads);
  const RotateWithOptions options{.rotary_dim = rotary_dim.value_or(0),
                                  .positions = at,
                                  .inverse = inverse,
                                  .threads = n};
  const Tensor result =
      Compute([&] { return RotateWith(heads, c, s, pairs, options); });
  return ToArray(AsAxes(result, in, AxesOf(a, in)), x);
}

}  // namespace

void BindRotary(nb::module_& m) {
  Function(m,
           "rotate(x: Any, encoding: Encoding, positions: Any | None = None, "
           "inverse: bool = False, *, axes: str | None = None, inplace: bool = "
           "False, threads: int | None = None) -> Any",
           "x rotated by Rope, Rope2D, MRope or Terms with theta, in the type "
           "and framework of x.\n\n"
           "x [B, H, L, D], [H, L, D] or [L, D]; axes=\"BLHD\" (or \"LHD\", "
           "\"BLD\") says otherwise. positions: integers [L] or [B, L], by "
           "default 0 .. L - 1. inverse undoes the rotation. inplace writes to "
           "x and returns it.",
           &RotateBy);
  Function(m,
           "rotate_with(x: Any, cos: Any, sin: Any, *, layout: str, "
           "rotary_dim: int | None = None, positions: Any | None = None, "
           "inverse: bool = False, axes: str | None = None, inplace: bool = "
           "False, threads: int | None = None) -> Any",
           "x rotated by given tables.\n\n"
           "cos, sin: [rows, rotary_dim / 2], or [rows, rotary_dim] with each "
           "value twice as Hugging Face keeps them. positions: the row of each "
           "token, integers [L] or [B, L], by default 0 .. L - 1. layout: "
           "\"interleaved\" or \"halves\", without a default. rotary_dim: how "
           "many leading channels rotate; None is all. axes and inplace as for "
           "rotate.",
           &RotateGiven);
}

}  // namespace locus::python

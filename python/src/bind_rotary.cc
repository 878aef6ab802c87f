// rotate and rotate_with: rotation alone.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "layout.h"
#include "locus/locus.h"
#include "options.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

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
  return Tensor::Borrow(x.dtype(), shape, strides, Address(x));
}

std::string AxesOf(const std::optional<std::string>& axes, const Tensor& x) {
  if (!axes) {
    if (x.rank() == 4) return "BHLD";
    if (x.rank() == 3) return "HLD";
    if (x.rank() == 2) return "LD";
    throw nb::value_error(
        ("x must be [B, H, L, D], [H, L, D] or [L, D], got " + x.Describe())
            .c_str());
  }
  for (const char* known : {"BHLD", "BLHD", "HLD", "LHD", "LD", "BLD"}) {
    if (*axes == known) return *axes;
  }
  throw nb::value_error(
      ("axes must be \"BHLD\", \"BLHD\", \"HLD\", \"LHD\", \"BLD\" or "
       "\"LD\", got \"" +
       *axes + '"')
          .c_str());
}

// The result of rotating [B, H, L, D] in the axes of x.
Tensor AsAxes(const Tensor& heads, const Tensor& x, const std::string& axes) {
  std::vector<int64_t> strides;
  for (const char axis : axes) {
    strides.push_back(heads.strides()[std::string("BHLD").find(axis)]);
  }
  const auto keep = std::make_shared<const Tensor>(heads);
  return Tensor::Borrow(heads.dtype(), x.shape(), strides, Address(heads),
                        keep);
}

std::vector<int64_t> PositionsOf(const nb::object& positions,
                                 const Tensor& heads) {
  return Integers("positions", positions,
                  {{heads.size(2)}, {heads.size(0), heads.size(2)}});
}

nb::object RotateBy(const nb::object& x, const nb::object& encoding,
                    const nb::object& positions, bool inverse,
                    const std::optional<std::string>& axes, bool inplace,
                    std::optional<int> threads) {
  const int n = ThreadsOf(threads);
  const auto prepare = [&](const Tensor& in) {
    Tensor heads = AsHeads(in, AxesOf(axes, in));
    std::vector<int64_t> at = PositionsOf(positions, heads);
    Rotation rotation = RotationOf(EncodingOf(encoding), heads, at);
    return std::tuple(std::move(heads), std::move(at), std::move(rotation));
  };
  if (inplace) {
    Writable to("x", x);
    auto [heads, at, rotation] = prepare(to.tensor());
    const nb::gil_scoped_release release;
    RotateInPlace(heads, rotation, at, inverse, n);
    return x;
  }
  const Borrowed in("x", x);
  const auto [heads, at, rotation] = prepare(in);
  Tensor result;
  {
    const nb::gil_scoped_release release;
    result = Rotate(heads, rotation, at, inverse, n);
  }
  return ToArray(AsAxes(result, in, AxesOf(axes, in)), x);
}

nb::object RotateGiven(const nb::object& x, const nb::object& cos,
                       const nb::object& sin, const std::string& layout,
                       std::optional<int64_t> rotary_dim,
                       const nb::object& positions, bool inverse,
                       const std::optional<std::string>& axes, bool inplace,
                       std::optional<int> threads) {
  const Borrowed c("cos", cos), s("sin", sin);
  if (rotary_dim && *rotary_dim < 1) {
    throw nb::value_error(
        ("rotary_dim must be positive, got " + std::to_string(*rotary_dim))
            .c_str());
  }
  const PairLayout pairs = LayoutOf(layout);
  const int n = ThreadsOf(threads);
  if (inplace) {
    Writable to("x", x);
    Tensor heads = AsHeads(to.tensor(), AxesOf(axes, to.tensor()));
    const std::vector<int64_t> at = PositionsOf(positions, heads);
    const nb::gil_scoped_release release;
    const RotaryTable table(c, s, pairs, rotary_dim.value_or(heads.size(3)));
    RotateOptions options{.rows = at, .inverse = inverse, .threads = n};
    if (at.empty()) options.first_row = 0;
    RotateInPlace(heads, table, options);
    return x;
  }
  const Borrowed in("x", x);
  const Tensor heads = AsHeads(in, AxesOf(axes, in));
  const std::vector<int64_t> at = PositionsOf(positions, heads);
  const RotateWithOptions options{.rotary_dim = rotary_dim.value_or(0),
                                  .positions = at,
                                  .inverse = inverse,
                                  .threads = n};
  Tensor result;
  {
    const nb::gil_scoped_release release;
    result = RotateWith(heads, c, s, pairs, options);
  }
  return ToArray(AsAxes(result, in, AxesOf(axes, in)), x);
}

}  // namespace

void BindRotary(nb::module_& m) {
  m.def("rotate", &RotateBy, "x"_a, "encoding"_a, "positions"_a = nb::none(),
        "inverse"_a = false, nb::kw_only(), "axes"_a = nb::none(),
        "inplace"_a = false, "threads"_a = nb::none(),
        "x rotated by Rope, Rope2D or MRope, in the type and framework of "
        "x.\n\n"
        "x [B, H, L, D], [H, L, D] or [L, D]; axes=\"BLHD\" (or \"LHD\", "
        "\"BLD\") says otherwise. positions: integers [L] or [B, L], by "
        "default 0 .. L - 1. inverse undoes the rotation. inplace writes to x "
        "and returns it.");
  m.def("rotate_with", &RotateGiven, "x"_a, "cos"_a, "sin"_a, nb::kw_only(),
        "layout"_a, "rotary_dim"_a = nb::none(), "positions"_a = nb::none(),
        "inverse"_a = false, "axes"_a = nb::none(), "inplace"_a = false,
        "threads"_a = nb::none(),
        "x rotated by given tables.\n\n"
        "cos, sin: [rows, rotary_dim / 2], or [rows, rotary_dim] with each "
        "value twice as Hugging Face keeps them. positions: the row of each "
        "token, integers [L] or [B, L], by default 0 .. L - 1. layout: "
        "\"interleaved\" or \"halves\", without a default. rotary_dim: how "
        "many leading channels rotate; None is all. axes and inplace as for "
        "rotate.");
}

}  // namespace locus::python

// The encodings as Python classes: constructors, parameters, embeddings.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "locus/locus.h"
#include "options.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

constexpr Word<ScalarMode> kModes[] = {
    {"add", ScalarMode::kAdd}, {"concatenate", ScalarMode::kConcatenate}};
constexpr Word<SinusoidLayout> kSinusoids[] = {
    {"interleaved", SinusoidLayout::kInterleaved},
    {"halves", SinusoidLayout::kHalves},
    {"halves-inclusive", SinusoidLayout::kHalvesInclusive}};
constexpr Word<KerpleKind> kKernels[] = {
    {"logarithmic", KerpleKind::kLogarithmic}, {"power", KerpleKind::kPower}};
constexpr Word<Resample> kResamples[] = {{"linear", Resample::kLinear},
                                         {"bicubic", Resample::kBicubic}};

nb::dict Params(const Encoding& encoding) {
  nb::dict result;
  for (const Param& param : encoding.Params()) {
    result[param.name.c_str()] = ToNumpy(param.value);
  }
  return result;
}

std::unique_ptr<Encoding> WithParams(const Encoding& encoding,
                                     const nb::dict& values) {
  std::vector<Tensor> tensors;
  std::string known;
  for (const Param& param : encoding.Params()) {
    known += (known.empty() ? "" : ", ") + param.name;
    if (!values.contains(param.name.c_str())) {
      throw nb::value_error(
          ("the parameter " + param.name + " is missing").c_str());
    }
    tensors.push_back(Table(param.name.c_str(), values[param.name.c_str()]));
  }
  for (const auto& [name, value] : values) {
    bool found = false;
    for (const Param& param : encoding.Params()) {
      found = found || nb::cast<std::string>(name) == param.name;
    }
    if (!found) {
      throw nb::value_error(("there is no parameter " +
                             nb::cast<std::string>(nb::str(name)) + ": " +
                             std::string(encoding.Name()) + " has " +
                             (known.empty() ? "none" : known))
                                .c_str());
    }
  }
  return encoding.WithParams(tensors);
}

// [r_max - r_min + 1] rows; without bounds the clip is symmetric.
std::pair<int64_t, int64_t> ClipOf(const Tensor& rows,
                                   std::optional<int64_t> r_min,
                                   std::optional<int64_t> r_max) {
  if (r_min && r_max) return {*r_min, *r_max};
  if (!rows.defined() || rows.rank() < 2) return {0, 0};  // told of later
  const int64_t count = rows.size(-2);
  if (r_min) return {*r_min, *r_min + count - 1};
  if (r_max) return {*r_max - count + 1, *r_max};
  if (count % 2 == 0) {
    throw nb::value_error(
        ("a table of " + std::to_string(count) +
         " rows is not symmetric about offset 0: give r_min or r_max")
            .c_str());
  }
  return {-(count / 2), count / 2};
}

template <typename T>
auto Class(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<T, Encoding>(m, name, doc);
}

void BindInputs(nb::module_& m) {
  Class<NoPosition>(m, "NoPosition", "Plain attention: no position at all.")
      .def(nb::init<>());
  Class<Index>(m, "Index",
               "E[pos] = pos, on every channel of x [.., dim] or appended "
               "as one more (mode \"concatenate\").")
      .def(
          "__init__",
          [](Index* self, int64_t dim, const std::string& mode) {
            new (self) Index(dim, WordOf("mode", mode, kModes));
          },
          "dim"_a, "mode"_a = "add");
  Class<NormalisedIndex>(
      m, "NormalisedIndex",
      "E[pos] = pos / (length - 1); without a length, the last position of "
      "the call counts as 1.")
      .def(
          "__init__",
          [](NormalisedIndex* self, int64_t dim, const std::string& mode,
             std::optional<int64_t> length) {
            new (self)
                NormalisedIndex(dim, WordOf("mode", mode, kModes), length);
          },
          "dim"_a, "mode"_a = "add", "length"_a = nb::none());
  Class<Binary>(m, "Binary",
                "Channel c of E[pos] is bit c of pos, least significant first; "
                "channels from bits to dim are zero.")
      .def(nb::init<int64_t, int64_t>(), "bits"_a, "dim"_a = 0);
  Class<SineOnly>(m, "SineOnly",
                  "E[pos, j] = sin(pos / base^(j / dim)): the step before "
                  "sines and cosines in pairs.")
      .def(nb::init<int64_t, double>(), "dim"_a, "base"_a = 10000.0);
  Class<Sinusoidal>(
      m, "Sinusoidal",
      "Vaswani et al. (2017): sin and cos of (pos + offset) / base^(2i / "
      "dim).\n\n"
      "layout: \"interleaved\" (sin at 2i, cos at 2i + 1), \"halves\" (all "
      "sines, then all cosines: RoFormer) or \"halves-inclusive\" (halves "
      "with base^(i / (dim / 2 - 1)): Whisper, M2M100).")
      .def(
          "__init__",
          [](Sinusoidal* self, int64_t dim, double base,
             const std::string& layout, int64_t offset) {
            new (self)
                Sinusoidal(dim, {.base = base,
                                 .layout = WordOf("layout", layout, kSinusoids),
                                 .offset = offset});
          },
          "dim"_a, "base"_a = 10000.0, "layout"_a = "interleaved",
          "offset"_a = 0);
  Class<Learned>(m, "Learned",
                 "x + table[pos + offset], table [L, d_model]. A position "
                 "without a row is a ValueError. OPT and BART have offset 2, "
                 "RoBERTa padding_idx + 1.")
      .def(
          "__init__",
          [](Learned* self, const nb::object& table, int64_t offset) {
            new (self) Learned(Table("table", table), offset);
          },
          "table"_a, "offset"_a = 0)
      .def(
          "resized",
          [](const Learned& self, int64_t length, const std::string& kernel) {
            return self.Resized(length, WordOf("kernel", kernel, kResamples));
          },
          "length"_a, "kernel"_a,
          "The table stretched or shrunk to `length` rows, by \"linear\" or "
          "\"bicubic\" (a = -0.75) interpolation as in PyTorch "
          "(align_corners = False).")
      .def(
          "resized_2d",
          [](const Learned& self, std::pair<int64_t, int64_t> from,
             std::pair<int64_t, int64_t> to, const std::string& kernel,
             int64_t prefix) {
            return self.Resized2D({from.first, from.second},
                                  {to.first, to.second},
                                  WordOf("kernel", kernel, kResamples), prefix);
          },
          "from_grid"_a, "to_grid"_a, "kernel"_a = "bicubic", "prefix"_a = 0,
          "The same for a raster of (height, width) rows after `prefix` rows "
          "that stay as they are.");
}

void BindTables(nb::module_& m) {
  Class<Shaw>(
      m, "Shaw",
      "Shaw et al. (2018): k_n + keys[r], v_n + values[r] with r = clip(m - "
      "n, r_min, r_max) - r_min.\n\n"
      "keys, values: [r_max - r_min + 1, D] shared by the heads, or [heads, "
      "r_max - r_min + 1, D]; either may be None. Without bounds the clip is "
      "symmetric.")
      .def(
          "__init__",
          [](Shaw* self, const nb::object& keys, const nb::object& values,
             std::optional<int64_t> r_min, std::optional<int64_t> r_max) {
            const Tensor k = Table("keys", keys), v = Table("values", values);
            const auto [low, high] = ClipOf(k.defined() ? k : v, r_min, r_max);
            new (self) Shaw(k, v, low, high);
          },
          "keys"_a.none(), "values"_a = nb::none(), "r_min"_a = nb::none(),
          "r_max"_a = nb::none());
  Class<KeyOffset>(m, "KeyOffset",
                   "f_k = W_K x_n + rows[m - n + M - 1]: Shaw's keys without "
                   "clipping. rows [2M - 1, D] or [heads, 2M - 1, D].")
      .def(
          "__init__",
          [](KeyOffset* self, const nb::object& rows) {
            new (self) KeyOffset(Table("rows", rows));
          },
          "rows"_a);
  Class<TransformerXL>(
      m, "TransformerXL",
      "Dai et al. (2019): (q_i + u).k_j + (q_i + v).r[m - n + M - 1].\n\n"
      "r [heads, 2M - 1, D]; u, v [heads, D].")
      .def(
          "__init__",
          [](TransformerXL* self, const nb::object& r, const nb::object& u,
             const nb::object& v) {
            new (self)
                TransformerXL(Table("r", r), Table("u", u), Table("v", v));
          },
          "r"_a, "u"_a, "v"_a)
      .def_static(
          "sinusoidal_keys",
          [](const nb::object& w_r, int64_t reach) {
            return ToNumpy(
                TransformerXL::SinusoidalKeys(Table("w_r", w_r), reach));
          },
          "w_r"_a, "reach"_a,
          "r [heads, 2 reach - 1, D] = W_r s(m - n), with s the sinusoid of "
          "the offset ([sin, cos] halves) and w_r [heads, D, d_model].");
  Class<Deberta>(
      m, "Deberta",
      "He et al. (2021): (q_i.k_j + q_i.c2p[b] + k_j.p2c[b]) / sqrt(terms "
      "* D).\n\n"
      "c2p: projected position keys, p2c: projected position queries, each "
      "[heads, 2 * span, D] or None. span = position_buckets, or "
      "max_relative_positions where position_buckets is 0 (v1).")
      .def(
          "__init__",
          [](Deberta* self, const nb::object& c2p, const nb::object& p2c,
             int64_t position_buckets, int64_t max_relative_positions) {
            new (self) Deberta(Table("c2p", c2p), Table("p2c", p2c),
                               position_buckets, max_relative_positions);
          },
          "c2p"_a.none(), "p2c"_a.none(), "position_buckets"_a,
          "max_relative_positions"_a);
  Class<Tupe>(m, "Tupe",
              "Ke et al. (2021): (q_i.k_j + q_pos[m].k_pos[n]) / sqrt(2D) + "
              "bias[h, m - n].\n\n"
              "q_pos, k_pos: p U_q and p U_k [heads, L, E]; bias [heads, 2M - "
              "1] or None. cls [heads, 2] resets the position part of "
              "cls_position: where it attends, and where it is attended to.")
      .def(
          "__init__",
          [](Tupe* self, const nb::object& q_pos, const nb::object& k_pos,
             const nb::object& bias, const nb::object& cls,
             int64_t cls_position) {
            TupeOptions options;
            options.bias = Table("bias", bias);
            options.cls = Table("cls", cls);
            options.cls_position = cls_position;
            new (self)
                Tupe(Table("q_pos", q_pos), Table("k_pos", k_pos), options);
          },
          "q_pos"_a, "k_pos"_a, "bias"_a = nb::none(), "cls"_a = nb::none(),
          "cls_position"_a = 0);
}

void BindBiases(nb::module_& m) {
  Class<T5Bias>(
      m, "T5Bias",
      "Raffel et al. (2020): s + table[bucket(n - m), h].\n\n"
      "table [buckets, heads], as checkpoints store it. The scale stays 1 / "
      "sqrt(D) unless the call gives another; T5 itself passes scale=1.")
      .def(
          "__init__",
          [](T5Bias* self, const nb::object& table, int64_t max_distance,
             bool bidirectional) {
            new (self)
                T5Bias(Table("table", table), max_distance, bidirectional);
          },
          "table"_a, "max_distance"_a = 128, "bidirectional"_a = false);
  Class<Alibi>(m, "Alibi",
               "Press et al. (2022): s - slope_h |m - n|.\n\n"
               "slopes [heads] replace the geometric ones 2^(-bias_max j / "
               "heads); future_slopes [heads] those towards later keys.")
      .def(
          "__init__",
          [](Alibi* self, int64_t heads, double bias_max,
             std::optional<std::vector<double>> slopes,
             std::optional<std::vector<double>> future_slopes) {
            new (self) Alibi(
                heads, {.bias_max = bias_max,
                        .slopes = slopes.value_or(std::vector<double>()),
                        .future_slopes =
                            future_slopes.value_or(std::vector<double>())});
          },
          "heads"_a, "bias_max"_a = 8.0, "slopes"_a = nb::none(),
          "future_slopes"_a = nb::none())
      .def_static(
          "slopes",
          [](int64_t heads, double bias_max) {
            return Alibi::Slopes(heads, bias_max);
          },
          "heads"_a, "bias_max"_a = 8.0,
          "The geometric slopes, for any number of heads, as BLOOM has them.");
  Class<Kerple>(
      m, "Kerple",
      "Chi et al. (2022): s - r1 ln(1 + r2 |m - n|) (kind \"logarithmic\") or "
      "s - r1 |m - n|^r2 (\"power\"). r1, r2 [heads].")
      .def(
          "__init__",
          [](Kerple* self, const std::string& kind, const nb::object& r1,
             const nb::object& r2) {
            new (self) Kerple(WordOf("kind", kind, kKernels), Table("r1", r1),
                              Table("r2", r2));
          },
          "kind"_a, "r1"_a, "r2"_a);
  Class<Fire>(m, "Fire",
              "Li et al. (2024): s + f(psi(m - n) / psi(max(m, threshold))) "
              "with psi(x) = ln(|c x| + 1) and f(x) = w2 relu(w1 x + b1) + "
              "b2.\n\n"
              "w1, b1 [width]; w2 [heads, width]; b2 [heads]; c, threshold "
              "[1].")
      .def(
          "__init__",
          [](Fire* self, const nb::object& w1, const nb::object& b1,
             const nb::object& w2, const nb::object& b2, const nb::object& c,
             const nb::object& threshold, double epsilon) {
            new (self) Fire({.w1 = Table("w1", w1),
                             .b1 = Table("b1", b1),
                             .w2 = Table("w2", w2),
                             .b2 = Table("b2", b2),
                             .c = Table("c", c),
                             .threshold = Table("threshold", threshold)},
                            epsilon);
          },
          "w1"_a, "b1"_a, "w2"_a, "b2"_a, "c"_a, "threshold"_a,
          "epsilon"_a = 1e-6);
  Class<Sandwich>(m, "Sandwich",
                  "Chi et al. (2023): the sinusoids' own inner product as a "
                  "bias, steeper for later heads.")
      .def(nb::init<int64_t, int64_t, double>(), "heads"_a, "dim"_a = 128,
           "base"_a = 10000.0);
  Class<SwinBias>(
      m, "SwinBias",
      "Liu et al. (2021): s + table[(dy + height - 1)(2 width - 1) + dx + "
      "width - 1, h].\n\n"
      "table [(2 height - 1)(2 width - 1), heads]; positions are raster "
      "indices y * width + x. With cls, position 0 is a [CLS] token and the "
      "table has three rows more (BEiT).")
      .def(
          "__init__",
          [](SwinBias* self, const nb::object& table, int64_t height,
             int64_t width, bool cls) {
            new (self) SwinBias(Table("table", table), height, width, cls);
          },
          "table"_a, "height"_a, "width"_a, "cls"_a = false);
}

}  // namespace

void BindEncodings(nb::module_& m) {
  nb::class_<Encoding>(m, "Encoding",
                       "A positional encoding: parameters, and how they enter "
                       "attention. Tables are shared, not copied.")
      .def_prop_ro(
          "name", [](const Encoding& self) { return std::string(self.Name()); },
          "The name in the list, such as \"rope\".")
      .def("params", &Params,
           "The trainable parameters: name -> array, shared.")
      .def("with_params", &WithParams, "values"_a,
           "The same encoding with other parameter values, by name.")
      .def(
          "embed",
          [](const Encoding& self, const nb::object& positions) {
            return ToNumpy(
                self.Embed(Integers("positions", positions, {{-1}})));
          },
          "positions"_a,
          "For encodings of the input: the rows [n, d_model] (float64) that "
          "are added to x. Others raise ValueError.")
      .def("__repr__", [](const nb::object& self) {
        const auto& encoding = nb::cast<const Encoding&>(self);
        std::string text = "locus." +
                           nb::cast<std::string>(self.type().attr("__name__")) +
                           "(";
        bool first = true;
        for (const Param& param : encoding.Params()) {
          text +=
              (first ? "" : ", ") + param.name + ": " + param.value.Describe();
          first = false;
        }
        return text + ")";
      });
  BindInputs(m);
  BindTables(m);
  BindBiases(m);
}

}  // namespace locus::python

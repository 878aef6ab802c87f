// The encodings as Python classes: constructors, parameters, embeddings.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "locus/locus.h"
#include "memory.h"
#include "numbers.h"
#include "settings.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

constexpr Word<Resample> kResamples[] = {{"linear", Resample::kLinear},
                                         {"bicubic", Resample::kBicubic}};

std::unique_ptr<Encoding> WithParams(const Encoding& encoding,
                                     const Arguments& a) {
  if (!nb::isinstance<nb::dict>(a["values"])) {
    RefuseType("values", "a dict of arrays by name", a["values"]);
  }
  const auto values = nb::borrow<nb::dict>(a["values"]);
  const std::vector<Param> params = encoding.Params();
  std::vector<Tensor> tensors;
  std::string known;
  for (const Param& param : params) {
    known += (known.empty() ? "" : ", ") + param.name;
    if (!values.contains(param.name.c_str())) {
      throw nb::value_error(
          ("the parameter " + param.name + " is missing").c_str());
    }
    const nb::object value = values[param.name.c_str()];
    if (value.is_none()) RefuseType(param.name, "an array", value);
    tensors.push_back(Table(param.name.c_str(), value));
  }
  for (const auto& [key, value] : values) {
    const std::string name = TextOf("a name among values", key);
    if (std::any_of(params.begin(), params.end(),
                    [&](const Param& param) { return param.name == name; })) {
      continue;
    }
    throw nb::value_error(("there is no parameter " + name + ": " +
                           std::string(encoding.Name()) + " has " +
                           (known.empty() ? "none" : known))
                              .c_str());
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
  int64_t other = 0;
  if (r_min && !__builtin_add_overflow(*r_min, count - 1, &other)) {
    return {*r_min, other};
  }
  if (r_max && !__builtin_sub_overflow(*r_max, count - 1, &other)) {
    return {other, *r_max};
  }
  if (r_min || r_max) {
    throw nb::value_error((std::string(r_min ? "r_min" : "r_max") + " = " +
                           std::to_string(r_min ? *r_min : *r_max) +
                           " leaves no room for " + std::to_string(count) +
                           " rows")
                              .c_str());
  }
  if (count % 2 == 0) {
    throw nb::value_error(
        ("a table of " + std::to_string(count) +
         " rows is not symmetric about offset 0: give r_min or r_max")
            .c_str());
  }
  return {-(count / 2), count / 2};
}

BucketMap BucketsOf(nb::handle object) {
  const Buckets* buckets = nullptr;
  if (!nb::try_cast<const Buckets*>(object, buckets, false) || !buckets) {
    RefuseType("buckets", "None, or those of another Tupe", object);
  }
  return buckets->map;
}

// So many rows as wide as those of the table must fit in memory.
void RequireRows(const Learned& learned, int64_t rows) {
  const Tensor table = learned.Params()[0].value;
  RequireMemory("a table of " + std::to_string(rows) + " rows", rows,
                table.size(1) * static_cast<int64_t>(sizeof(double)));
}

void BindInputs(nb::module_& m) {
  auto none = EncodingClass<NoPosition>(m, "NoPosition",
                                        "Plain attention: no position at all.");
  Constructor(none, "NoPosition()", [](NoPosition* self, const Arguments&) {
    new (self) NoPosition();
  });
  auto index = EncodingClass<Index>(
      m, "Index",
      "E[pos] = pos, on every channel of x [.., dim] or appended as one more "
      "(mode \"concatenate\").");
  Constructor(index, "Index(dim: int, mode: str = 'add')",
              [](Index* self, const Arguments& a) {
                new (self) Index(a.Int("dim"), a.Choice("mode", kModes));
              });
  auto normalised = EncodingClass<NormalisedIndex>(
      m, "NormalisedIndex",
      "E[pos] = pos / (length - 1); without a length, the last position of "
      "the call counts as 1.");
  Constructor(normalised,
              "NormalisedIndex(dim: int, mode: str = 'add', length: int | None "
              "= None)",
              [](NormalisedIndex* self, const Arguments& a) {
                new (self)
                    NormalisedIndex(a.Int("dim"), a.Choice("mode", kModes),
                                    a.IntOrNone("length"));
              });
  auto binary = EncodingClass<Binary>(
      m, "Binary",
      "Channel c of E[pos] is bit c of pos, least significant first; channels "
      "from bits to dim are zero.");
  Constructor(binary, "Binary(bits: int, dim: int = 0)",
              [](Binary* self, const Arguments& a) {
                new (self) Binary(a.Int("bits"), a.Int("dim"));
              });
  auto sine = EncodingClass<SineOnly>(
      m, "SineOnly",
      "E[pos, j] = sin(pos / base^(j / dim)): the step before sines and "
      "cosines in pairs.");
  Constructor(sine, "SineOnly(dim: int, base: float = 10000.0)",
              [](SineOnly* self, const Arguments& a) {
                new (self) SineOnly(a.Int("dim"), a.Real("base"));
              });
  auto sinusoidal = EncodingClass<Sinusoidal>(
      m, "Sinusoidal",
      "Vaswani et al. (2017): sin and cos of (pos + offset) / base^(2i / "
      "dim).\n\n"
      "layout: \"interleaved\" (sin at 2i, cos at 2i + 1), \"halves\" (all "
      "sines, then all cosines: RoFormer) or \"halves-inclusive\" (halves "
      "with base^(i / (dim / 2 - 1)): Whisper, M2M100).");
  Constructor(sinusoidal,
              "Sinusoidal(dim: int, base: float = 10000.0, layout: str = "
              "'interleaved', offset: int = 0)",
              [](Sinusoidal* self, const Arguments& a) {
                new (self) Sinusoidal(a.Int("dim"),
                                      {.base = a.Real("base"),
                                       .layout = a.Choice("layout", kSinusoids),
                                       .offset = a.Int("offset")});
              });
}

void BindLearned(nb::module_& m) {
  auto learned = EncodingClass<Learned>(
      m, "Learned",
      "x + table[pos + offset], table [L, d_model]. A position without a row "
      "is a ValueError. OPT and BART have offset 2, RoBERTa padding_idx + 1.");
  Constructor(learned, "Learned(table: Any, offset: int = 0)",
              [](Learned* self, const Arguments& a) {
                new (self) Learned(Table("table", a["table"]), a.Int("offset"));
              });
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

void BindTables(nb::module_& m) {
  auto shaw = EncodingClass<Shaw>(
      m, "Shaw",
      "Shaw et al. (2018): k_n + keys[r], v_n + values[r] with r = clip(m - "
      "n, r_min, r_max) - r_min.\n\n"
      "keys, values: [r_max - r_min + 1, D] shared by the heads, or [heads, "
      "r_max - r_min + 1, D]; either may be None. Without bounds the clip is "
      "symmetric.");
  Constructor(
      shaw,
      "Shaw(keys: Any | None, values: Any | None = None, r_min: int | None = "
      "None, r_max: int | None = None)",
      [](Shaw* self, const Arguments& a) {
        const Tensor k = Table("keys", a["keys"]);
        const Tensor v = Table("values", a["values"]);
        const auto [low, high] = ClipOf(
            k.defined() ? k : v, a.IntOrNone("r_min"), a.IntOrNone("r_max"));
        new (self) Shaw(k, v, low, high);
      });
  auto key_offset = EncodingClass<KeyOffset>(
      m, "KeyOffset",
      "f_k = W_K x_n + rows[m - n + M - 1]: Shaw's keys without clipping. rows "
      "[2M - 1, D] or [heads, 2M - 1, D].");
  Constructor(key_offset, "KeyOffset(rows: Any)",
              [](KeyOffset* self, const Arguments& a) {
                new (self) KeyOffset(Table("rows", a["rows"]));
              });
  auto xl = EncodingClass<TransformerXL>(
      m, "TransformerXL",
      "Dai et al. (2019): (q_i + u).k_j + (q_i + v).r[m - n + M - 1].\n\n"
      "r [heads, 2M - 1, D]; u, v [heads, D].");
  Constructor(xl, "TransformerXL(r: Any, u: Any, v: Any)",
              [](TransformerXL* self, const Arguments& a) {
                new (self) TransformerXL(Table("r", a["r"]), Table("u", a["u"]),
                                         Table("v", a["v"]));
              });
  Static(xl, "sinusoidal_keys(w_r: Any, reach: int) -> Any",
         "r [heads, 2 reach - 1, D] = W_r s(m - n), with s the sinusoid of "
         "the offset ([sin, cos] halves) and w_r [heads, D, d_model].",
         [](const Arguments& a) {
           const Tensor w_r = Table("w_r", a["w_r"]);
           const int64_t reach = a.Int("reach");
           return ToNumpy(Compute(
               [&] { return TransformerXL::SinusoidalKeys(w_r, reach); }));
         });
  auto deberta = EncodingClass<Deberta>(
      m, "Deberta",
      "He et al. (2021): (q_i.k_j + q_i.c2p[b] + k_j.p2c[b]) / sqrt(terms "
      "* D).\n\n"
      "c2p: projected position keys, p2c: projected position queries, each "
      "[heads, 2 * span, D] or None. span = position_buckets, or "
      "max_relative_positions where position_buckets is 0 (v1).");
  Constructor(deberta,
              "Deberta(c2p: Any | None, p2c: Any | None, position_buckets: "
              "int, max_relative_positions: int)",
              [](Deberta* self, const Arguments& a) {
                new (self) Deberta(
                    Table("c2p", a["c2p"]), Table("p2c", a["p2c"]),
                    a.Int("position_buckets"), a.Int("max_relative_positions"));
              });
  auto tupe = EncodingClass<Tupe>(
      m, "Tupe",
      "Ke et al. (2021): (q_i.k_j + q_pos[m].k_pos[n]) / sqrt(2D) + "
      "bias[h, m - n].\n\n"
      "q_pos, k_pos: p U_q and p U_k [heads, L, E]; bias [heads, 2M - "
      "1] or None. cls [heads, 2] resets the position part of "
      "cls_position: where it attends, and where it is attended to. buckets "
      "is for copies of a Tupe whose bias is not by offset.");
  Constructor(tupe,
              "Tupe(q_pos: Any, k_pos: Any, bias: Any | None = None, cls: Any "
              "| None = None, cls_position: int = 0, *, buckets: Any | None = "
              "None)",
              [](Tupe* self, const Arguments& a) {
                TupeOptions options;
                options.bias = Table("bias", a["bias"]);
                options.cls = Table("cls", a["cls"]);
                options.cls_position = a.Int("cls_position");
                if (!a["buckets"].is_none()) {
                  options.buckets = BucketsOf(a["buckets"]);
                }
                new (self) Tupe(Table("q_pos", a["q_pos"]),
                                Table("k_pos", a["k_pos"]), options);
              });
}

void BindBiasTables(nb::module_& m) {
  auto t5 = EncodingClass<T5Bias>(
      m, "T5Bias",
      "Raffel et al. (2020): s + table[bucket(n - m), h].\n\n"
      "table [buckets, heads], as checkpoints store it. The scale stays 1 / "
      "sqrt(D) unless the call gives another; T5 itself passes scale=1.");
  Constructor(t5,
              "T5Bias(table: Any, max_distance: int = 128, bidirectional: bool "
              "= False)",
              [](T5Bias* self, const Arguments& a) {
                new (self)
                    T5Bias(Table("table", a["table"]), a.Int("max_distance"),
                           a.Flag("bidirectional"));
              });
  auto fire = EncodingClass<Fire>(
      m, "Fire",
      "Li et al. (2024): s + f(psi(m - n) / psi(max(m, threshold))) "
      "with psi(x) = ln(|c x| + 1) and f(x) = w2 relu(w1 x + b1) + "
      "b2.\n\n"
      "w1, b1 [width]; w2 [heads, width]; b2 [heads]; c, threshold "
      "[1].");
  Constructor(fire,
              "Fire(w1: Any, b1: Any, w2: Any, b2: Any, c: Any, threshold: "
              "Any, epsilon: float = 1e-06)",
              [](Fire* self, const Arguments& a) {
                new (self)
                    Fire({.w1 = Table("w1", a["w1"]),
                          .b1 = Table("b1", a["b1"]),
                          .w2 = Table("w2", a["w2"]),
                          .b2 = Table("b2", a["b2"]),
                          .c = Table("c", a["c"]),
                          .threshold = Table("threshold", a["threshold"])},
                         a.Real("epsilon"));
              });
  auto swin = EncodingClass<SwinBias>(
      m, "SwinBias",
      "Liu et al. (2021): s + table[(dy + height - 1)(2 width - 1) + dx + "
      "width - 1, h].\n\n"
      "table [(2 height - 1)(2 width - 1), heads]; positions are raster "
      "indices y * width + x. With cls, position 0 is a [CLS] token and the "
      "table has three rows more (BEiT).");
  Constructor(swin,
              "SwinBias(table: Any, height: int, width: int, cls: bool = "
              "False)",
              [](SwinBias* self, const Arguments& a) {
                new (self) SwinBias(Table("table", a["table"]), a.Int("height"),
                                    a.Int("width"), a.Flag("cls"));
              });
}

void BindBiases(nb::module_& m) {
  auto alibi = EncodingClass<Alibi>(
      m, "Alibi",
      "Press et al. (2022): s - slope_h |m - n|.\n\n"
      "slopes [heads] replace the geometric ones 2^(-bias_max j / "
      "heads); future_slopes [heads] those towards later keys.");
  Constructor(alibi,
              "Alibi(heads: int, bias_max: float = 8.0, slopes: "
              "Sequence[float] | None = None, future_slopes: Sequence[float] | "
              "None = None)",
              [](Alibi* self, const Arguments& a) {
                new (self) Alibi(a.Int("heads"),
                                 {.bias_max = a.Real("bias_max"),
                                  .slopes = RealRow("slopes", a["slopes"]),
                                  .future_slopes = RealRow(
                                      "future_slopes", a["future_slopes"])});
              });
  Static(alibi, "slopes(heads: int, bias_max: float = 8.0) -> list[float]",
         "The geometric slopes, for any number of heads, as BLOOM has them.",
         [](const Arguments& a) {
           return Alibi::Slopes(a.Int("heads"), a.Real("bias_max"));
         });
  auto kerple = EncodingClass<Kerple>(
      m, "Kerple",
      "Chi et al. (2022): s - r1 ln(1 + r2 |m - n|) (kind \"logarithmic\") or "
      "s - r1 |m - n|^r2 (\"power\"). r1, r2 [heads].");
  Constructor(kerple, "Kerple(kind: str, r1: Any, r2: Any)",
              [](Kerple* self, const Arguments& a) {
                new (self) Kerple(a.Choice("kind", kKernels),
                                  Table("r1", a["r1"]), Table("r2", a["r2"]));
              });
  auto sandwich = EncodingClass<Sandwich>(
      m, "Sandwich",
      "Chi et al. (2023): the sinusoids' own inner product as a bias, steeper "
      "for later heads.");
  Constructor(
      sandwich, "Sandwich(heads: int, dim: int = 128, base: float = 10000.0)",
      [](Sandwich* self, const Arguments& a) {
        new (self) Sandwich(a.Int("heads"), a.Int("dim"), a.Real("base"));
      });
}

// Rows E[pos], after a look at how wide one is.
nb::object Embed(const Encoding& self, const Arguments& a) {
  const int64_t first = 0;
  const int64_t width = self.Embed({&first, 1}).size(1);
  const int64_t bytes = width * static_cast<int64_t>(sizeof(double));
  const std::vector<int64_t> at =
      Integers("positions", a["positions"], {{-1}}, bytes);
  RequireMemory("embedding " + std::to_string(at.size()) + " positions",
                static_cast<int64_t>(at.size()), bytes);
  return ToNumpy(Compute([&] { return self.Embed(at); }));
}

std::string Represent(nb::handle_t<Encoding> self) {
  const auto& encoding = nb::cast<const Encoding&>(self);
  const std::string name = TypeName(self);
  std::string text = "locus." + name.substr(name.rfind('.') + 1) + "(";
  bool first = true;
  for (const Param& param : encoding.Params()) {
    text += (first ? "" : ", ") + param.name + ": " + param.value.Describe();
    first = false;
  }
  return text + ")";
}

}  // namespace

void BindEncodings(nb::module_& m) {
  BindBuckets(m);
  nb::class_<Encoding> encoding(
      m, "Encoding",
      "A positional encoding: parameters, and how they enter attention. Tables "
      "are shared, not copied; copy.deepcopy and pickle copy them. Threads "
      "may share an encoding.");
  encoding.def_prop_ro(
      "name", [](const Encoding& self) { return std::string(self.Name()); },
      "The name in the list, such as \"rope\".");
  Method(encoding, "params() -> dict",
         "The trainable parameters: name -> array, shared.",
         [](const Encoding& self, const Arguments&) { return ParamsOf(self); });
  Method(encoding, "with_params(values: dict) -> Encoding",
         "The same encoding with other parameter values, by name.",
         &WithParams);
  Method(encoding, "embed(positions: Any) -> Any",
         "For encodings of the input: the rows [n, d_model] (float64) that "
         "are added to x. Others raise ValueError.",
         &Embed);
  encoding.def("__repr__", &Represent);
  BindInputs(m);
  BindLearned(m);
  BindTables(m);
  BindBiasTables(m);
  BindBiases(m);
}

}  // namespace locus::python

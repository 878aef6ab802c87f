// attention, attention_backward, merge, linear_attention.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "locus/locus.h"
#include "memory.h"
#include "numbers.h"
#include "options.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

constexpr const char* kAttentionDoc =
    "Fused attention with positions, in memory that grows with the length.\n\n"
    "    s_ij = scale (rot(q_i).rot(k_j) + ...) + bias    o = softmax(s) v\n\n"
    "q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]: NumPy arrays or "
    "anything on the CPU that speaks DLPack, of float32, bfloat16 or float16 "
    "and any strides; Hq is a multiple of Hkv. Returns [B, Hq, Lq, Dv] in the "
    "type and framework of q; with return_lse also lse [B, Hq, Lq] "
    "(float32).\n\n"
    "encoding: one of the classes of this module, or a layer of from_config, "
    "whose scale, window and softcap hold where these are None; None is no "
    "position.\n"
    "causal: key positions after the query's are hidden.\n"
    "scale: of the dot products; None is the encoding's own, usually 1 / "
    "sqrt(D).\n"
    "window: an int w hides offsets m - n >= w (and <= -w unless causal); a "
    "pair (left, right) keeps -right <= m - n <= left.\n"
    "softcap: cap * tanh(s / cap), bias included.\n"
    "q_positions, k_positions: integers [L] or [B, L]; by default keys count "
    "from 0 and the last query stands at the last key of its sequence.\n"
    "key_lengths [B]: only so many keys of a sequence exist; the result is "
    "that "
    "of the sequence with its keys cut off there.\n"
    "q_segments, k_segments: integers [L] or [B, L]; tokens see their own "
    "segment only (packed sequences).\n"
    "by_index: causal and window compare the indices of tokens, which are the "
    "default positions, instead of the positions given; for MRope with "
    "videos.\n"
    "threads: None is all of the machine's. Results do not depend on it.\n\n"
    "A query that sees no key yields zeros and lse = -inf.";

nb::object Attend(const Arguments& a) {
  const nb::handle q = a["q"];
  const Borrowed q_in = BorrowData("q", q), k_in = BorrowData("k", a["k"]),
                 v_in = BorrowData("v", a["v"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  Options options(a, q_in, k_in);
  const bool return_lse = a.Flag("return_lse");
  options.options.return_lse = return_lse;
  const AttentionResult result = Compute(
      [&] { return Attention(q_in, k_in, v_in, position, options.options); });
  nb::object out = ToArray(result.out, q);
  if (!return_lse) return out;
  return nb::make_tuple(out, ToArray(result.lse, q));
}

constexpr const char* kExplainDoc =
    "How attention (or, with backward=True, its gradient) would run a call, "
    "without running it: a dict with the driver, the drivers before it and why "
    "they do not take the call, threads, SIMD target, sizes, mask and terms. "
    "With LOCUS_VERBOSE=1 in the environment every call prints its 'line' and "
    "its milliseconds to standard error.";

nb::object Explain(const Arguments& a) {
  const Borrowed q_in = BorrowData("q", a["q"]), k_in = BorrowData("k", a["k"]),
                 v_in = BorrowData("v", a["v"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, k_in);
  const Pass pass = a.Flag("backward") ? Pass::kBackward : Pass::kForward;
  const CallReport report = Compute([&] {
    return ExplainCall(q_in, k_in, v_in, position, options.options, pass);
  });
  nb::dict refusals, facts;
  for (const CallReport::Refusal& refusal : report.refusals) {
    refusals[refusal.driver.c_str()] = refusal.reason;
  }
  nb::list terms;
  for (const std::string& term : report.terms) terms.append(term);
  facts["pass"] = pass == Pass::kBackward ? "backward" : "forward";
  facts["driver"] = report.driver;
  facts["refusals"] = refusals;
  facts["threads"] = report.threads;
  facts["simd_target"] = report.simd_target;
  facts["dtype"] = std::string(DTypeName(report.dtype));
  facts["batch"] = report.batch;
  facts["q_heads"] = report.q_heads;
  facts["kv_heads"] = report.kv_heads;
  facts["q_len"] = report.q_len;
  facts["k_len"] = report.k_len;
  facts["head_dim"] = report.head_dim;
  facts["value_dim"] = report.value_dim;
  facts["mask"] = report.mask;
  facts["terms"] = terms;
  facts["line"] = report.Line();
  return facts;
}

constexpr const char* kBackwardDoc =
    "Gradients of sum(d_out * out): (d_q, d_k, d_v, d_params).\n\n"
    "out and lse are what attention returned with return_lse=True for the same "
    "arguments. d_params: name -> gradient, for every trainable parameter of "
    "the encoding, in the parameter's shape and type. The same bits for any "
    "number of threads.";

nb::object Backward(const Arguments& a) {
  const nb::handle q = a["q"], k = a["k"], v = a["v"];
  const Borrowed d_in = BorrowData("d_out", a["d_out"]),
                 q_in = BorrowData("q", q), k_in = BorrowData("k", k),
                 v_in = BorrowData("v", v),
                 out_in = BorrowData("out", a["out"]), lse_in("lse", a["lse"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, k_in);
  const EncodingGrads grads = Compute([&] {
    const AttentionResult forward{.out = out_in.tensor(),
                                  .lse = lse_in.tensor()};
    return AttentionBackward(d_in, q_in, k_in, v_in, forward, position,
                             options.options);
  });
  nb::dict params;
  const std::vector<Param> own = position.Params();
  for (size_t i = 0; i < grads.params.size(); ++i) {
    const Param& grad = grads.params[i];
    params[grad.name.c_str()] = ToArray(grad.value.To(own[i].value.dtype()), q);
  }
  return nb::make_tuple(ToArray(grads.d_q, q), ToArray(grads.d_k, k),
                        ToArray(grads.d_v, v), params);
}

// (out, lse), as attention returned it.
class Partial {
 public:
  Partial(const char* name, nb::handle pair)
      : out_((std::string(name) + "'s out").c_str(), Part(name, pair, 0)),
        lse_((std::string(name) + "'s lse").c_str(), Part(name, pair, 1)) {}
  AttentionResult result() const {
    return {.out = out_.tensor(), .lse = lse_.tensor()};
  }
  static nb::handle Part(const char* name, nb::handle pair, Py_ssize_t i) {
    if (!nb::isinstance<nb::tuple>(pair) || PyTuple_Size(pair.ptr()) != 2) {
      RefuseType(name,
                 "a pair (out, lse) as attention returns with return_lse=True",
                 pair);
    }
    return PyTuple_GetItem(pair.ptr(), i);
  }

 private:
  Borrowed out_, lse_;
};

nb::object MergeTwo(const Arguments& a) {
  const Partial first("a", a["a"]), second("b", a["b"]);
  const AttentionResult merged =
      Compute([&] { return Merge(first.result(), second.result()); });
  const nb::handle like = Partial::Part("a", a["a"], 0);
  return nb::make_tuple(ToArray(merged.out, like), ToArray(merged.lse, like));
}

// phi from a Python function of one row [D] -> [F].
FeatureMap FeatureMapOf(nb::handle given, int64_t head_dim) {
  if (given.is_none()) return FeatureMap::EluPlusOne();
  if (PyCallable_Check(given.ptr()) == 0) {
    RefuseType("feature_map", "a function", given);
  }
  const nb::object function = nb::borrow(given);
  const auto call = [function](std::span<const double> x) {
    const Tensor row = Tensor::From({static_cast<int64_t>(x.size())},
                                    std::vector<double>(x.begin(), x.end()));
    return Table("feature_map(x)", function(ToNumpy(row)));
  };
  const std::vector<double> zero(static_cast<size_t>(head_dim), 0.0);
  const Tensor first = call(zero);
  if (first.rank() != 1) {
    throw nb::value_error(
        ("feature_map must map a row [D] to a row [F], it gave " +
         first.Describe())
            .c_str());
  }
  FeatureMap map;
  map.features = first.size(0);
  map.map = [call, features = map.features](std::span<const double> x,
                                            std::span<double> phi) {
    const Tensor row = call(x);
    if (row.rank() != 1 || row.size(0) != features) {
      throw nb::value_error(("feature_map gave " + row.Describe() +
                             " after a row of " + std::to_string(features))
                                .c_str());
    }
    for (int64_t i = 0; i < features; ++i) {
      phi[static_cast<size_t>(i)] = row.At(i);
    }
  };
  return map;
}

nb::object Linear(const Arguments& a) {
  const nb::handle q = a["q"], feature_map = a["feature_map"];
  const Borrowed q_in("q", q), k_in("k", a["k"]), v_in("v", a["v"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options given(a, q_in, k_in);
  LinearAttentionOptions options;
  options.causal = given.options.causal;
  options.q_positions = given.options.q_positions;
  options.k_positions = given.options.k_positions;
  if (q_in.tensor().rank() == 4) {
    options.feature_map = FeatureMapOf(feature_map, q_in.tensor().size(3));
  }
  const auto work = [&] {
    return LinearAttention(q_in, k_in, v_in, position, options);
  };
  // A function of Python needs the interpreter.
  const Tensor out = feature_map.is_none() ? Compute(work) : work();
  return ToArray(out.To(q_in.tensor().dtype()), q);
}

nb::object PackLengths(const Arguments& a) {
  const std::vector<int64_t> lengths =
      Integers("lengths", a["lengths"], {{-1}});
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    // Negative ones are told of by Pack.
    if (length > 0 && __builtin_add_overflow(tokens, length, &tokens)) {
      throw nb::value_error("lengths add up to more than int64 holds");
    }
  }
  RequireMemory("a pack of " + std::to_string(tokens) + " tokens", tokens,
                2 * sizeof(int64_t));
  PackedTokens packed = Pack(lengths);
  return nb::make_tuple(ToNumpy(std::move(packed.positions)),
                        ToNumpy(std::move(packed.segments)));
}

// The plain options of a call in Python's own types, for operators of PyTorch,
// which refuse others in words of their own.
nb::object PlainOptions(const Arguments& a) {
  const auto number = [&](const char* name) {
    const auto value = a.RealOrNone(name);
    return value ? nb::object(nb::float_(*value)) : nb::none();
  };
  const int threads = a.Threads();
  return nb::make_tuple(
      a.Flag("causal"), number("scale"), number("softcap"),
      a.Flag("return_lse"),
      threads == 0 ? nb::none() : nb::object(nb::int_(threads)));
}

}  // namespace

void BindAttention(nb::module_& m) {
  Function(m,
           "_plain_options(causal: Any, scale: Any, softcap: Any, return_lse: "
           "Any, threads: Any) -> tuple",
           "", &PlainOptions);
  Function(m, "_flag(name: str, value: Any) -> bool", "",
           [](const Arguments& a) {
             return FlagOf(a.Text("name").c_str(), a["value"]);
           });
  Function(m, "_int_pair(name: str, values: Any) -> tuple", "",
           [](const Arguments& a) {
             return IntPairOf(a.Text("name").c_str(), a["values"]);
           });
  Function(m, "_shown(value: Any) -> str", "",
           [](const Arguments& a) { return Shown(a["value"]); });
  Function(m, "_integers(name: str, values: Any) -> Any", "",
           [](const Arguments& a) {
             return IntegerArray(a.Text("name").c_str(), a["values"]);
           });
  Function(m,
           "attention(q: Any, k: Any, v: Any, encoding: Encoding | None = "
           "None, *, causal: bool = False, scale: float | None = None, window: "
           "int | tuple[int, int] | None = None, softcap: float | None = None, "
           "q_positions: Any | None = None, k_positions: Any | None = None, "
           "key_lengths: Any | None = None, q_segments: Any | None = None, "
           "k_segments: Any | None = None, by_index: bool = False, return_lse: "
           "bool = False, threads: int | None = None) -> Any",
           kAttentionDoc, &Attend);
  Function(m,
           "attention_backward(d_out: Any, q: Any, k: Any, v: Any, out: Any, "
           "lse: Any, encoding: Encoding | None = None, *, causal: bool = "
           "False, scale: float | None = None, window: int | tuple[int, int] | "
           "None = None, softcap: float | None = None, q_positions: Any | None "
           "= None, k_positions: Any | None = None, key_lengths: Any | None = "
           "None, q_segments: Any | None = None, k_segments: Any | None = "
           "None, by_index: bool = False, threads: int | None = None) -> Any",
           kBackwardDoc, &Backward);
  Function(m,
           "explain_call(q: Any, k: Any, v: Any, encoding: Encoding | None = "
           "None, *, backward: bool = False, causal: bool = False, scale: "
           "float | None = None, window: int | tuple[int, int] | None = None, "
           "softcap: float | None = None, q_positions: Any | None = None, "
           "k_positions: Any | None = None, key_lengths: Any | None = None, "
           "q_segments: Any | None = None, k_segments: Any | None = None, "
           "by_index: bool = False, threads: int | None = None) -> dict",
           kExplainDoc, &Explain);
  Function(m, "merge(a: Any, b: Any) -> Any",
           "Joins (out, lse) of the same queries over two disjoint sets of "
           "keys: what one call over all of them gives.",
           &MergeTwo);
  Function(m,
           "linear_attention(q: Any, k: Any, v: Any, encoding: Encoding | None "
           "= None, *, causal: bool = False, feature_map: Callable[[Any], Any] "
           "| None = None, q_positions: Any | None = None, k_positions: Any | "
           "None = None) -> Any",
           "Linear attention with rotary positions, O(N), in float64:\n\n"
           "    o_i = sum_j (R_m phi(q_i)).(R_n phi(k_j)) v_j / sum_j "
           "phi(q_i).phi(k_j)\n\n"
           "feature_map: a function of one row [D] -> [F], not negative; None "
           "is elu(x) + 1. Biases and tables cannot be factored and are "
           "refused.",
           &Linear);
  Function(m, "pack(lengths: Any) -> tuple",
           "(positions, segments) of sequences packed end to end: [3, 2] gives "
           "[0, 1, 2, 0, 1] and [0, 0, 0, 1, 1].",
           &PackLengths);
}

}  // namespace locus::python

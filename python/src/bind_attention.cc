// attention, attention_backward, merge, linear_attention, forget gates.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/encodings/rope2d.h"
#include "locus/forget_gate.h"
#include "locus/linear_attention.h"
#include "locus/plan.h"
#include "locus/tensor.h"
#include "locus/terms.h"
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
    "type and framework of q.\n\n"
    "encoding: one of the classes of this module, or a layer of from_config, "
    "whose scale, window and softcap hold where these are None; None is no "
    "position.\n"
    "causal: key positions after the query's are hidden.\n"
    "scale: of the dot products; None is the encoding's own, usually 1 / "
    "sqrt(D).\n"
    "window: an int w hides offsets m - n >= w (and <= -w unless causal); a "
    "pair (left, right) keeps -right <= m - n <= left.\n"
    "chunk: tokens see only those of their own chunk of so many positions.\n"
    "softcap: cap * tanh(s / cap), biases included.\n"
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
    "mask: booleans [B or 1, Hq or 1, Lq or 1, Lk], or the last two or three "
    "of these axes; a query sees a key only where it is true.\n"
    "prefix_lengths [B]: so many first keys of a sequence are visible to all "
    "of its queries, whatever causal, window and chunk say.\n"
    "key_bias [B or 1, Hq or 1, Lk], pair_bias [B or 1, Hq or 1, Lq or 1, Lk]: "
    "added to the scores.\n"
    "sinks [Hq]: a logit per head that takes part in the softmax without a "
    "value.\n"
    "table_queries [B, Hq, Lq, R]: what meets the query table of the encoding, "
    "instead of q.\n"
    "dropout, seed: each weight becomes 0 with this probability, the others "
    "are divided by 1 - dropout; the seed decides which.\n"
    "dropout_tokens: ((first, stride) of the queries, (first, stride) of the "
    "keys), what tokens count as in the whole sequence, so that a part of it "
    "drops what the whole does; None is ((0, 1), (0, 1)).\n"
    "return_lse, return_weights: the result is (out, lse, weights), of these "
    "what is asked for. Weights are Lq x Lk numbers per head, which attention "
    "itself never holds at once.\n"
    "threads: None is all of the machine's. Results do not depend on it.\n\n"
    "A query that sees no key yields zeros and lse = -inf.";

nb::object Attend(const Arguments& a) {
  const nb::handle q = a["q"];
  const Borrowed q_in = BorrowData("q", q), k_in = BorrowData("k", a["k"]),
                 v_in = BorrowData("v", a["v"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, k_in);
  const AttentionResult result = Compute(
      [&] { return Attention(q_in, k_in, v_in, position, options.options); });
  return ResultOf(result, q);
}

// Tensor `i` of those that a call writes its results to; None: absent.
Tensor OutputOf(nb::handle outputs, Py_ssize_t i) {
  const nb::handle output = PyTuple_GetItem(outputs.ptr(), i);
  if (output.is_none()) return {};
  return nb::cast<const RawTensor&>(output).tensor;
}

void AttendInto(const Arguments& a) {
  const Borrowed q_in = BorrowData("q", a["q"]), k_in = BorrowData("k", a["k"]),
                 v_in = BorrowData("v", a["v"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, k_in);
  const nb::handle into = a["into"];
  AttentionResult result{.out = OutputOf(into, 0),
                         .lse = OutputOf(into, 1),
                         .weights = OutputOf(into, 2)};
  Compute([&] {
    AttentionInto(q_in, k_in, v_in, position, options.options, result);
  });
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
    "Gradients of sum(d_out * out) + sum(d_lse * lse): (d_q, d_k, d_v, "
    "d_params).\n\n"
    "out and lse are what attention returned with return_lse=True for the same "
    "arguments. d_params: name -> gradient, for every trainable parameter of "
    "the encoding and for key_bias, sinks, table_queries and, with "
    "pair_bias_grad=True, pair_bias, in their shapes and types. The same bits "
    "for any number of threads.";

// With `into` (d_q, d_k, d_v), which it writes to, it returns d_params alone.
nb::object Backward(const Arguments& a) {
  const bool into = a.Has("into");
  const nb::handle q = a["q"], k = a["k"], v = a["v"];
  const Borrowed d_in = BorrowData("d_out", a["d_out"]),
                 q_in = BorrowData("q", q), k_in = BorrowData("k", k),
                 v_in = BorrowData("v", v),
                 out_in = BorrowData("out", a["out"]), lse_in("lse", a["lse"]);
  std::optional<Borrowed> d_lse;
  if (!a["d_lse"].is_none()) d_lse.emplace("d_lse", a["d_lse"]);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, k_in);
  const bool pair_bias = a.Flag("pair_bias_grad");
  Tensor d_q, d_k, d_v;
  if (into) {
    d_q = OutputOf(a["into"], 0);
    d_k = OutputOf(a["into"], 1);
    d_v = OutputOf(a["into"], 2);
  }
  const EncodingGrads grads = Compute([&] {
    const AttentionResult forward{.out = out_in.tensor(),
                                  .lse = lse_in.tensor()};
    return AttentionBackward(d_in, q_in, k_in, v_in, forward, position,
                             options.options,
                             {.d_lse = d_lse ? d_lse->tensor() : Tensor(),
                              .pair_bias = pair_bias,
                              .d_q = d_q,
                              .d_k = d_k,
                              .d_v = d_v});
  });
  nb::dict params;
  const auto operand = [&](const char* name, const Tensor& grad) {
    if (grad.defined()) params[name] = ToArray(grad, q);
  };
  operand("key_bias", grads.operands.key_bias);
  operand("pair_bias", grads.operands.pair_bias);
  operand("sinks", grads.operands.sinks);
  operand("table_queries", grads.operands.table_queries);
  const std::vector<Param> own = position.Params();
  for (size_t i = 0; i < grads.params.size(); ++i) {
    const Param& grad = grads.params[i];
    // Tables returned by the functions of a Custom are not parameters.
    const DType dtype = i < own.size() ? own[i].value.dtype() : DType::kF64;
    params[grad.name.c_str()] = ToArray(grad.value.To(dtype), q);
  }
  if (into) return params;
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

nb::object GateSums(const Arguments& a) {
  const nb::handle log_gates = a["log_gates"], before = a["before"];
  const Borrowed gates_in("log_gates", log_gates);
  std::optional<Borrowed> before_in;
  if (!before.is_none()) before_in.emplace("before", before);
  return ToArray(
      ForgetGateSums(gates_in, before_in ? before_in->tensor() : Tensor()),
      log_gates);
}

nb::object GateBias(const Arguments& a) {
  const nb::handle sums = a["sums"];
  return ToArray(ForgetGateBias(Borrowed("sums", sums)), sums);
}

nb::object GateBackward(const Arguments& a) {
  const nb::handle d_key_bias = a["d_key_bias"];
  return ToArray(ForgetGatePullBack(Borrowed("d_key_bias", d_key_bias)),
                 d_key_bias);
}

// The plain options of a call in Python's own types, for operators of PyTorch,
// which refuse others in words of their own.
nb::object PlainOptions(const Arguments& a) {
  const auto number = [&](const char* name) {
    const auto value = a.RealOrNone(name);
    return value ? nb::object(nb::float_(*value)) : nb::none();
  };
  const auto seed = a.IntOrNone("seed");
  const int threads = a.Threads();
  return nb::make_tuple(
      a.Flag("causal"), a.Flag("by_index"), number("scale"), number("softcap"),
      a.Real("dropout"), seed ? nb::object(nb::int_(*seed)) : nb::none(),
      a.Flag("return_lse"), a.Flag("return_weights"),
      threads == 0 ? nb::none() : nb::object(nb::int_(threads)));
}

}  // namespace

void BindAttention(nb::module_& m) {
  Function(
      m,
      "_plain_options(causal: Any, by_index: Any, scale: Any, softcap: "
      "Any, dropout: Any, seed: Any, return_lse: Any, return_weights: Any, "
      "threads: Any) -> tuple",
      "", &PlainOptions);
  Function(m, "_flag(name: str, value: Any) -> bool", "",
           [](const Arguments& a) {
             return FlagOf(a.Text("name").c_str(), a["value"]);
           });
  Function(m, "_int(name: str, value: Any) -> int", "", [](const Arguments& a) {
    return IntOf(a.Text("name"), a["value"]);
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
  const std::string mask = kMaskKeywords, operands = kOperandKeywords;
  const std::string positions =
      "q_positions: Any | None = None, k_positions: Any | None = None, "
      "key_lengths: Any | None = None, q_segments: Any | None = None, "
      "k_segments: Any | None = None, by_index: bool = False, ";
  const std::string dropout =
      "dropout: float = 0.0, seed: int | None = None, dropout_tokens: "
      "tuple[tuple[int, int], tuple[int, int]] | None = None, ";
  Function(m,
           "attention(q: Any, k: Any, v: Any, encoding: Encoding | None = "
           "None, *, causal: bool = False, " +
               mask + positions + operands + dropout +
               "return_lse: bool = False, return_weights: bool = False, "
               "threads: int | None = None) -> Any",
           kAttentionDoc, &Attend);
  Function(m,
           "_attention_into(q: Any, k: Any, v: Any, encoding: Encoding | None, "
           "into: tuple, *, causal: bool = False, " +
               mask + positions + operands + dropout +
               "return_lse: bool = False, return_weights: bool = False, "
               "threads: int | None = None) -> None",
           "", [](const Arguments& a) { AttendInto(a); });
  const std::string backward =
                        "d_out: Any, q: Any, k: Any, v: Any, out: Any, "
                        "lse: Any, encoding: Encoding | None",
                    backward_options =
                        "*, causal: bool = False, " + mask + positions +
                        operands + dropout +
                        "d_lse: Any | None = None, pair_bias_grad: bool = "
                        "False, threads: int | None = None) -> Any";
  Function(m, "attention_backward(" + backward + " = None, " + backward_options,
           kBackwardDoc, &Backward);
  Function(m,
           "_attention_backward_into(" + backward + ", into: tuple, " +
               backward_options,
           "", &Backward);
  Function(m,
           "explain_call(q: Any, k: Any, v: Any, encoding: Encoding | None = "
           "None, *, backward: bool = False, causal: bool = False, " +
               mask + positions + operands + dropout +
               "return_weights: bool = False, threads: int | None = None) -> "
               "dict",
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
  Function(
      m, "forget_gate_sums(log_gates: Any, before: Any | None = None) -> Any",
      "F[b, h, t] = before[b, h] + sum over l <= t of log_gates[b, h, l], "
      "in float64 (Forgetting Transformer).\n\n"
      "log_gates [B, H, L]: ln of the forget gates, finite. before [B, H]: "
      "F of the last token so far, for keys that join a cache; None is 0.",
      &GateSums);
  Function(
      m, "forget_gate_bias(sums: Any) -> Any",
      "The key_bias of forget gates, float32 [B, H, Lk]: K_j = F_last - "
      "F_j of the sums F of all keys.\n\n"
      "Causal attention with it is that with F_i - F_j added to every "
      "score, since F_i is the same for all keys of a query. lse is higher "
      "by F_last - F_i; a soft cap and sinks do not go with it.",
      &GateBias);
  Function(m, "forget_gate_backward(d_key_bias: Any) -> Any",
           "The gradient of log_gates, given that of forget_gate_bias, both "
           "[B, H, Lk]: sums over the keys before each.",
           &GateBackward);
  Function(m, "pack(lengths: Any) -> tuple",
           "(positions, segments) of sequences packed end to end: [3, 2] gives "
           "[0, 1, 2, 0, 1] and [0, 0, 0, 1, 1].",
           &PackLengths);
}

}  // namespace locus::python

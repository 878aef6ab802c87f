// attention, attention_backward, merge, linear_attention.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "locus/locus.h"
#include "options.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

constexpr const char* kAttentionDoc =
    "Fused attention with positions, in memory that grows with the length.\n\n"
    "    s_ij = scale (rot(q_i).rot(k_j) + ...) + bias    o = softmax(s) v\n\n"
    "q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]: NumPy arrays or "
    "anything on the CPU that speaks DLPack, of float32, bfloat16 or float16 "
    "and any strides; Hq is a multiple of Hkv. Returns [B, Hq, Lq, Dv] in the "
    "type and framework of q; with return_lse also lse [B, Hq, Lq] "
    "(float32).\n\n"
    "encoding: one of the classes of this module; None is no position.\n"
    "causal: key positions after the query's are hidden.\n"
    "scale: of the dot products; None is the encoding's own, usually 1 / "
    "sqrt(D).\n"
    "window: an int w hides offsets m - n >= w (and <= -w unless causal); a "
    "pair (left, right) keeps -right <= m - n <= left.\n"
    "softcap: cap * tanh(s / cap), bias included.\n"
    "q_positions, k_positions: integers [L] or [B, L]; by default keys count "
    "from 0 and the last query stands at the last key.\n"
    "key_lengths [B]: only so many keys of a sequence exist.\n"
    "q_segments, k_segments: integers [L] or [B, L]; tokens see their own "
    "segment only (packed sequences).\n"
    "threads: None is all of the machine's. Results do not depend on it.\n\n"
    "A query that sees no key yields zeros and lse = -inf.";

nb::object Attend(const nb::object& q, const nb::object& k, const nb::object& v,
                  const nb::object& encoding, bool causal,
                  std::optional<double> scale, const nb::object& window,
                  std::optional<double> softcap, const nb::object& q_positions,
                  const nb::object& k_positions, const nb::object& key_lengths,
                  const nb::object& q_segments, const nb::object& k_segments,
                  bool return_lse, std::optional<int> threads) {
  const Borrowed q_in = BorrowData("q", q), k_in = BorrowData("k", k),
                 v_in = BorrowData("v", v);
  Options options({.causal = causal,
                   .scale = scale,
                   .window = window,
                   .softcap = softcap,
                   .q_positions = q_positions,
                   .k_positions = k_positions,
                   .key_lengths = key_lengths,
                   .q_segments = q_segments,
                   .k_segments = k_segments,
                   .threads = threads},
                  q_in, k_in);
  options.options.return_lse = return_lse;
  const Encoding& position = EncodingOf(encoding);
  AttentionResult result;
  {
    const nb::gil_scoped_release release;
    result = Attention(q_in, k_in, v_in, position, options.options);
  }
  nb::object out = ToArray(result.out, q);
  if (!return_lse) return out;
  return nb::make_tuple(out, ToArray(result.lse, q));
}

constexpr const char* kBackwardDoc =
    "Gradients of sum(d_out * out): (d_q, d_k, d_v, d_params).\n\n"
    "out and lse are what attention returned with return_lse=True for the same "
    "arguments. d_params: name -> gradient, for every trainable parameter of "
    "the encoding, in the parameter's shape and type. The same bits for any "
    "number of threads.";

nb::object Backward(const nb::object& d_out, const nb::object& q,
                    const nb::object& k, const nb::object& v,
                    const nb::object& out, const nb::object& lse,
                    const nb::object& encoding, bool causal,
                    std::optional<double> scale, const nb::object& window,
                    std::optional<double> softcap,
                    const nb::object& q_positions,
                    const nb::object& k_positions,
                    const nb::object& key_lengths, const nb::object& q_segments,
                    const nb::object& k_segments, std::optional<int> threads) {
  const Borrowed q_in = BorrowData("q", q), k_in = BorrowData("k", k),
                 v_in = BorrowData("v", v), d_in = BorrowData("d_out", d_out),
                 out_in = BorrowData("out", out), lse_in("lse", lse);
  const Options options({.causal = causal,
                         .scale = scale,
                         .window = window,
                         .softcap = softcap,
                         .q_positions = q_positions,
                         .k_positions = k_positions,
                         .key_lengths = key_lengths,
                         .q_segments = q_segments,
                         .k_segments = k_segments,
                         .threads = threads},
                        q_in, k_in);
  const Encoding& position = EncodingOf(encoding);
  EncodingGrads grads;
  {
    const nb::gil_scoped_release release;
    const AttentionResult forward{.out = out_in.tensor(),
                                  .lse = lse_in.tensor()};
    grads = AttentionBackward(d_in, q_in, k_in, v_in, forward, position,
                              options.options);
  }
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
  Partial(const char* name, const nb::object& pair)
      : pair_(nb::borrow<nb::tuple>(pair)),
        out_((std::string(name) + "'s out").c_str(), Part(name, pair, 0)),
        lse_((std::string(name) + "'s lse").c_str(), Part(name, pair, 1)) {}
  AttentionResult result() const {
    return {.out = out_.tensor(), .lse = lse_.tensor()};
  }

 private:
  static nb::object Part(const char* name, const nb::object& pair, int i) {
    if (!nb::isinstance<nb::tuple>(pair) || nb::len(pair) != 2) {
      throw nb::type_error((std::string(name) +
                            " must be a pair (out, lse) as attention returns "
                            "with return_lse=True, got " +
                            TypeName(pair))
                               .c_str());
    }
    return pair[i];
  }
  nb::tuple pair_;
  Borrowed out_, lse_;
};

nb::object MergeTwo(const nb::object& a, const nb::object& b) {
  const Partial first("a", a), second("b", b);
  AttentionResult merged;
  {
    const nb::gil_scoped_release release;
    merged = Merge(first.result(), second.result());
  }
  const nb::object like = a[0];
  return nb::make_tuple(ToArray(merged.out, like), ToArray(merged.lse, like));
}

// phi from a Python function of one row [D] -> [F].
FeatureMap FeatureMapOf(const nb::object& function, int64_t head_dim) {
  if (function.is_none()) return FeatureMap::EluPlusOne();
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

nb::object Linear(const nb::object& q, const nb::object& k, const nb::object& v,
                  const nb::object& encoding, bool causal,
                  const nb::object& feature_map, const nb::object& q_positions,
                  const nb::object& k_positions) {
  const Borrowed q_in("q", q), k_in("k", k), v_in("v", v);
  const Options positions(
      {.q_positions = q_positions, .k_positions = k_positions}, q_in, k_in);
  LinearAttentionOptions options;
  options.causal = causal;
  options.q_positions = positions.options.q_positions;
  options.k_positions = positions.options.k_positions;
  if (q_in.tensor().rank() == 4) {
    options.feature_map = FeatureMapOf(feature_map, q_in.tensor().size(3));
  }
  const Encoding& position = EncodingOf(encoding);
  Tensor out;
  if (feature_map.is_none()) {
    const nb::gil_scoped_release release;
    out = LinearAttention(q_in, k_in, v_in, position, options);
  } else {
    out = LinearAttention(q_in, k_in, v_in, position, options);
  }
  return ToArray(out.To(q_in.tensor().dtype()), q);
}

}  // namespace

void BindAttention(nb::module_& m) {
  m.def("attention", &Attend, "q"_a, "k"_a, "v"_a, "encoding"_a = nb::none(),
        nb::kw_only(), "causal"_a = false, "scale"_a = nb::none(),
        "window"_a = nb::none(), "softcap"_a = nb::none(),
        "q_positions"_a = nb::none(), "k_positions"_a = nb::none(),
        "key_lengths"_a = nb::none(), "q_segments"_a = nb::none(),
        "k_segments"_a = nb::none(), "return_lse"_a = false,
        "threads"_a = nb::none(), kAttentionDoc);
  m.def("attention_backward", &Backward, "d_out"_a, "q"_a, "k"_a, "v"_a,
        "out"_a, "lse"_a, "encoding"_a = nb::none(), nb::kw_only(),
        "causal"_a = false, "scale"_a = nb::none(), "window"_a = nb::none(),
        "softcap"_a = nb::none(), "q_positions"_a = nb::none(),
        "k_positions"_a = nb::none(), "key_lengths"_a = nb::none(),
        "q_segments"_a = nb::none(), "k_segments"_a = nb::none(),
        "threads"_a = nb::none(), kBackwardDoc);
  m.def("merge", &MergeTwo, "a"_a, "b"_a,
        "Joins (out, lse) of the same queries over two disjoint sets of keys: "
        "what one call over all of them gives.");
  m.def("linear_attention", &Linear, "q"_a, "k"_a, "v"_a,
        "encoding"_a = nb::none(), nb::kw_only(), "causal"_a = false,
        "feature_map"_a = nb::none(), "q_positions"_a = nb::none(),
        "k_positions"_a = nb::none(),
        "Linear attention with rotary positions, O(N), in float64:\n\n"
        "    o_i = sum_j (R_m phi(q_i)).(R_n phi(k_j)) v_j / sum_j "
        "phi(q_i).phi(k_j)\n\n"
        "feature_map: a function of one row [D] -> [F], not negative; None is "
        "elu(x) + 1. Biases and tables cannot be factored and are refused.");
  m.def(
      "pack",
      [](const nb::object& lengths) {
        const PackedTokens packed = Pack(Integers("lengths", lengths, {{-1}}));
        const nb::object asarray = nb::module_::import_("numpy").attr("array");
        const auto array = [&](const std::vector<int64_t>& values) {
          nb::list list;
          for (const int64_t value : values) list.append(value);
          return asarray(list, nb::arg("dtype") = "int64");
        };
        return nb::make_tuple(array(packed.positions), array(packed.segments));
      },
      "lengths"_a,
      "(positions, segments) of sequences packed end to end: [3, 2] gives "
      "[0, 1, 2, 0, 1] and [0, 0, 0, 1, 1].");
}

}  // namespace locus::python

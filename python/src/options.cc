#include "options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "locus/encodings/none.h"
#include "numbers.h"
#include "values.h"

namespace locus::python {

std::optional<Window> WindowOf(nb::handle window, bool causal) {
  if (window.is_none()) return std::nullopt;
  if (nb::isinstance<nb::tuple>(window) || nb::isinstance<nb::list>(window)) {
    const auto [left, right] = IntPairOf("window", window);
    return Window{left, right};
  }
  if (PyIndex_Check(window.ptr()) == 0) {
    RefuseType("window", "an integer or a pair (left, right)", window);
  }
  const int64_t width = IntOf("window", window);
  if (width < 1) {
    throw nb::value_error(
        ("window must be at least 1, got " + std::to_string(width)).c_str());
  }
  return Window{width - 1, causal ? 0 : width - 1};
}

const Encoding& EncodingOf(nb::handle encoding) {
  static const NoPosition none;
  if (!encoding.is_valid() || encoding.is_none()) return none;
  const Encoding* result = nullptr;
  if (!nb::try_cast<const Encoding*>(encoding, result, false)) {
    if (const Encoding* own = EncodingOfModel(encoding)) return *own;
    RefuseType("encoding", "an encoding of locus or None", encoding);
  }
  return *result;
}

Options::Options(const Arguments& a, const Tensor& q, const Tensor& k) {
  if (a.Has("causal")) options.causal = a.Flag("causal");
  if (a.Has("by_index")) options.by_index = a.Flag("by_index");
  if (a.Has("scale")) options.scale = a.RealOrNone("scale");
  if (a.Has("window")) options.window = WindowOf(a["window"], options.causal);
  if (a.Has("chunk")) options.chunk = a.IntOrNone("chunk");
  if (a.Has("softcap")) options.softcap = a.RealOrNone("softcap");
  if (a.Has("threads")) options.threads = a.Threads();
  // Wrong ranks are told of by the call itself.
  const auto read = [&](const char* name, const Tensor& x,
                        std::vector<int64_t>& to) {
    if (!a.Has(name) || x.rank() != 4) return;
    to = IntegersOrNone(name, a[name], {{x.size(2)}, {x.size(0), x.size(2)}});
  };
  read("q_positions", q, q_positions_);
  read("k_positions", k, k_positions_);
  read("q_segments", q, q_segments_);
  read("k_segments", k, k_segments_);
  if (a.Has("key_lengths") && k.rank() == 4) {
    key_lengths_ =
        IntegersOrNone("key_lengths", a["key_lengths"], {{k.size(0)}});
  }
  if (a.Has("prefix_lengths") && k.rank() == 4) {
    prefix_lengths_ =
        IntegersOrNone("prefix_lengths", a["prefix_lengths"], {{k.size(0)}});
  }
  options.prefix_lengths = prefix_lengths_;
  operands_.reserve(4);
  const auto operand = [&](const char* name, Tensor& to) {
    if (!a.Has(name) || a[name].is_none()) return;
    to = operands_.emplace_back(name, a[name]).tensor();
  };
  operand("key_bias", options.key_bias);
  operand("pair_bias", options.pair_bias);
  operand("sinks", options.sinks);
  operand("table_queries", options.table_queries);
  if (a.Has("mask") && !a["mask"].is_none()) {
    options.mask = mask_.emplace("mask", a["mask"]).mask();
  }
  if (a.Has("dropout")) options.dropout.rate = a.Real("dropout");
  if (a.Has("seed")) ReadSeed(a);
  if (a.Has("return_lse")) options.return_lse = a.Flag("return_lse");
  if (a.Has("return_weights")) {
    options.return_weights = a.Flag("return_weights");
  }
  options.q_positions = q_positions_;
  options.k_positions = k_positions_;
  options.q_segments = q_segments_;
  options.k_segments = k_segments_;
  options.key_lengths = key_lengths_;
  if (!a.Has("encoding")) return;
  const models::LayerPosition* layer = LayerOfModel(a["encoding"]);
  if (layer != nullptr) FillIn(*layer);
}

void Options::ReadSeed(const Arguments& a) {
  const std::optional<int64_t> seed = a.IntOrNone("seed");
  // Two calls that drop the same weights without being told to would be a
  // mistake that nobody sees. Rates that are none are told of by the call.
  const double rate = options.dropout.rate;
  if (rate > 0.0 && rate < 1.0 && !seed) {
    throw nb::value_error(
        "dropout needs a seed, from which it draws what it drops: seed=1");
  }
  options.dropout.seed = static_cast<uint64_t>(seed.value_or(0));
  if (!a.Has("dropout_tokens") || a["dropout_tokens"].is_none()) return;
  const nb::handle sides = a["dropout_tokens"];
  if (!nb::isinstance<nb::tuple>(sides) || PyTuple_Size(sides.ptr()) != 2) {
    RefuseType("dropout_tokens",
               "two pairs (first, stride), of the queries and of the keys",
               sides);
  }
  Dropout& d = options.dropout;
  std::tie(d.first_query, d.query_stride) =
      IntPairOf("dropout_tokens", PyTuple_GetItem(sides.ptr(), 0));
  std::tie(d.first_key, d.key_stride) =
      IntPairOf("dropout_tokens", PyTuple_GetItem(sides.ptr(), 1));
}

void Options::FillIn(const models::LayerPosition& layer) {
  if (!options.chunk && layer.chunk != 0 && options.q_segments.empty()) {
    options.chunk = layer.chunk;
  }
  if (!options.scale) options.scale = layer.scale;
  if (!options.window) options.window = layer.window;
  if (!options.softcap) options.softcap = layer.softcap;
}

nb::object ResultOf(const AttentionResult& result, nb::handle like) {
  nb::object out = ToArray(result.out, like);
  if (!result.lse.defined() && !result.weights.defined()) return out;
  nb::list parts;
  parts.append(out);
  for (const Tensor* part : {&result.lse, &result.weights}) {
    if (part->defined()) parts.append(ToArray(*part, like));
  }
  return nb::tuple(parts);
}

Rotation RotationOf(const Encoding& encoding, const Tensor& x,
                    const std::vector<int64_t>& positions) {
  Shape shape;
  shape.q_heads = shape.kv_heads = x.size(1);
  shape.head_dim = x.size(3);
  int64_t first = 0, last = std::max<int64_t>(x.size(2) - 1, 0);
  if (!positions.empty()) {
    const auto [low, high] =
        std::minmax_element(positions.begin(), positions.end());
    first = *low;
    last = *high;
  }
  shape.min_q_pos = shape.min_k_pos = first;
  shape.max_q_pos = shape.max_k_pos = last;
  const Lowered lowered = encoding.Lower(shape);
  if (!lowered.terms.rotate) {
    throw nb::value_error(
        (std::string(encoding.Name()) +
         " does not rotate: rotate takes Rope, Rope2D, MRope or Terms with "
         "theta")
            .c_str());
  }
  return *lowered.terms.rotate;
}

}  // namespace locus::python

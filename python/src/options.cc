#include "options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

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
  options.q_positions = q_positions_;
  options.k_positions = k_positions_;
  options.q_segments = q_segments_;
  options.k_segments = k_segments_;
  options.key_lengths = key_lengths_;
  if (!a.Has("encoding")) return;
  const models::LayerPosition* layer = LayerOfModel(a["encoding"]);
  if (layer != nullptr) FillIn(*layer);
}

void Options::FillIn(const models::LayerPosition& layer) {
  if (layer.chunk != 0 && options.q_segments.empty() && !options.window) {
    throw nb::value_error(("layer " + std::to_string(layer.layer) + " of " +
                           layer.family + " attends in chunks of " +
                           std::to_string(layer.chunk) +
                           " positions: pass **layer.options(q_len, k_len) too")
                              .c_str());
  }
  if (!options.scale) options.scale = layer.scale;
  if (!options.window) options.window = layer.window;
  if (!options.softcap) options.softcap = layer.softcap;
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
         " does not rotate: rotate takes Rope, Rope2D or MRope")
            .c_str());
  }
  return *lowered.terms.rotate;
}

}  // namespace locus::python

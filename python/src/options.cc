#include "options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "arrays.h"
#include "locus/encodings/none.h"

namespace locus::python {

void NoSuchWord(const char* name, const std::string& got,
                const std::vector<const char*>& words) {
  std::string text = std::string(name) + " must be ";
  for (size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += '"' + std::string(words[i]) + '"';
  }
  throw nb::value_error((text + ", got \"" + got + '"').c_str());
}

std::optional<Window> WindowOf(nb::handle window, bool causal) {
  if (!window.is_valid() || window.is_none()) return std::nullopt;
  if (nb::isinstance<nb::int_>(window)) {
    const auto width = nb::cast<int64_t>(window);
    if (width < 1) {
      throw nb::value_error(
          ("window must be at least 1, got " + std::to_string(width)).c_str());
    }
    return Window{width - 1, causal ? 0 : width - 1};
  }
  if (nb::isinstance<nb::tuple>(window) && nb::len(window) == 2) {
    return Window{nb::cast<int64_t>(window[0]), nb::cast<int64_t>(window[1])};
  }
  throw nb::type_error(
      ("window must be an int or a pair (left, right), got " + TypeName(window))
          .c_str());
}

int ThreadsOf(std::optional<int> threads) {
  if (!threads) return 0;
  if (*threads < 1) {
    throw nb::value_error(
        ("threads must be at least 1, or None for all of the machine's, got " +
         std::to_string(*threads))
            .c_str());
  }
  return *threads;
}

const Encoding& EncodingOf(nb::handle encoding) {
  static const NoPosition none;
  if (!encoding.is_valid() || encoding.is_none()) return none;
  const Encoding* result = nullptr;
  if (!nb::try_cast<const Encoding*>(encoding, result, false)) {
    if (const Encoding* own = EncodingOfModel(encoding)) return *own;
    throw nb::type_error(
        ("encoding must be one of locus.encodings() or None, got " +
         TypeName(encoding))
            .c_str());
  }
  return *result;
}

Options::Options(const Keywords& keywords, const Tensor& q, const Tensor& k) {
  options.causal = keywords.causal;
  options.scale = keywords.scale;
  options.window = WindowOf(keywords.window, keywords.causal);
  options.softcap = keywords.softcap.value_or(0.0);
  options.threads = ThreadsOf(keywords.threads);
  // Wrong ranks are told of by the call itself.
  const auto read = [](const char* name, nb::handle values, const Tensor& x,
                       std::vector<int64_t>& to) {
    if (!values.is_valid() || values.is_none() || x.rank() != 4) return;
    to = Integers(name, values, {{x.size(2)}, {x.size(0), x.size(2)}});
  };
  read("q_positions", keywords.q_positions, q, q_positions_);
  read("k_positions", keywords.k_positions, k, k_positions_);
  read("q_segments", keywords.q_segments, q, q_segments_);
  read("k_segments", keywords.k_segments, k, k_segments_);
  if (keywords.key_lengths.is_valid() && k.rank() == 4) {
    key_lengths_ = Integers("key_lengths", keywords.key_lengths, {{k.size(0)}});
  }
  options.q_positions = q_positions_;
  options.k_positions = k_positions_;
  options.q_segments = q_segments_;
  options.k_segments = k_segments_;
  options.key_lengths = key_lengths_;
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

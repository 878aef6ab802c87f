// The keywords that every attention call shares.
#ifndef LOCUS_PYTHON_SRC_OPTIONS_H_
#define LOCUS_PYTHON_SRC_OPTIONS_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "locus/attention.h"
#include "locus/encoding.h"

namespace locus::python {

namespace nb = nanobind;

// What Python passed, as it came.
struct Keywords {
  bool causal = false;
  std::optional<double> scale = {};
  nb::handle window = {};
  std::optional<double> softcap = {};
  nb::handle q_positions = {};
  nb::handle k_positions = {};
  nb::handle key_lengths = {};
  nb::handle q_segments = {};
  nb::handle k_segments = {};
  std::optional<int> threads = {};
};

// Options with the memory of their spans.
class Options {
 public:
  // q and k give the sizes that positions are held to.
  Options(const Keywords& keywords, const Tensor& q, const Tensor& k);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  AttentionOptions options;

 private:
  std::vector<int64_t> q_positions_, k_positions_, key_lengths_;
  std::vector<int64_t> q_segments_, k_segments_;
};

// int w: offsets m - n below w, and above -w unless causal. (left, right):
// -right <= m - n <= left.
std::optional<Window> WindowOf(nb::handle window, bool causal);

// None: as many as the machine has.
int ThreadsOf(std::optional<int> threads);

// None is no position; a LayerPosition stands for its encoding.
const Encoding& EncodingOf(nb::handle encoding);

// The encoding of a LayerPosition; null if it is something else.
const Encoding* EncodingOfModel(nb::handle object);

// The encoding lowered for the rotation of tokens x [B, H, L, D] at these
// positions (empty: 0 .. L - 1); refuses those that do not rotate.
Rotation RotationOf(const Encoding& encoding, const Tensor& x,
                    const std::vector<int64_t>& positions);

// A keyword that is one of few words.
template <typename T>
struct Word {
  const char* word;
  T value;
};
[[noreturn]] void NoSuchWord(const char* name, const std::string& got,
                             const std::vector<const char*>& words);
template <typename T, size_t n>
T WordOf(const char* name, const std::string& got, const Word<T> (&words)[n]) {
  std::vector<const char*> known;
  for (const Word<T>& word : words) {
    if (got == word.word) return word.value;
    known.push_back(word.word);
  }
  NoSuchWord(name, got, known);
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_OPTIONS_H_

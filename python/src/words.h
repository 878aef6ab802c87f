// Arguments that are one of few words.
#ifndef LOCUS_PYTHON_SRC_WORDS_H_
#define LOCUS_PYTHON_SRC_WORDS_H_

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "values.h"

namespace locus::python {

template <typename T>
struct Word {
  const char* word;
  T value;
};

// ValueError: {name} must be one of the words.
[[noreturn]] void NoSuchWord(const char* name, nanobind::handle got,
                             const std::vector<const char*>& words);

template <typename T, size_t n>
T WordOf(const char* name, nanobind::handle value, const Word<T> (&words)[n]) {
  const std::string got = TextOf(name, value);
  std::vector<const char*> known;
  for (const Word<T>& word : words) {
    if (got == word.word) return word.value;
    known.push_back(word.word);
  }
  NoSuchWord(name, value, known);
}

// The word of a value.
template <typename T, size_t n>
const char* WordFor(T value, const Word<T> (&words)[n]) {
  for (const Word<T>& word : words) {
    if (word.value == value) return word.word;
  }
  return "";
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_WORDS_H_

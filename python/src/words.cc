#include "words.h"

namespace locus::python {

void NoSuchWord(const char* name, nanobind::handle got,
                const std::vector<const char*>& words) {
  std::string text = std::string(name) + " must be ";
  for (size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += '"' + std::string(words[i]) + '"';
  }
  throw nanobind::value_error((text + ", got \"" + Line(got) + '"').c_str());
}

}  // namespace locus::python

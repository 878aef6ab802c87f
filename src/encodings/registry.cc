// The list of encodings, built from encodings.inc.
#include <array>

#include "core/fail.h"
#include "locus/descriptor.h"

namespace locus {

// Each one is defined in its encoding's file.
#define LOCUS_ENCODING(name, Class) extern const EncodingInfo k##Class##Info;
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING

std::unique_ptr<Encoding> Encoding::WithParams(
    std::span<const Tensor> values) const {
  Fail("{} has no trainable parameters, got {}", Name(), values.size());
}

ParamGrads Encoding::PullBack(const Shape&, const TermGrads&) const {
  return {};
}

Tensor Encoding::Embed(std::span<const int64_t>) const {
  Fail("{} does not act on the input: it has no rows to add to x", Name());
}

std::span<const EncodingInfo> Encodings() {
  static const std::array kList = {
#define LOCUS_ENCODING(name, Class) k##Class##Info,
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING
  };
  return kList;
}

const EncodingInfo& FindEncoding(std::string_view name) {
  std::vector<std::string_view> names;
  for (const EncodingInfo& info : Encodings()) {
    if (info.name == name || info.class_name == name) return info;
    names.push_back(info.name);
  }
  if (name == "cope" || name == "CoPE") {
    Fail(
        "CoPE is outside: its positions are sums of gates over the scores of "
        "the keys in between, so no bucket of m - n can stand for them");
  }
  Fail("there is no encoding '{}'; known encodings: {}", name,
       fmt::join(names, ", "));
}

}  // namespace locus

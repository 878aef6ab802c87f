// Names of the enumerators in the list, as printed.
#ifndef LOCUS_CLI_NAMES_H_
#define LOCUS_CLI_NAMES_H_

#include <string_view>

#include "locus/descriptor.h"

namespace locus::cli {

inline std::string_view ReferenceName(Reference reference) {
  switch (reference) {
    case Reference::kNone:
      return "none";
    case Reference::kAbsolute:
      return "absolute";
    case Reference::kRelative:
      break;
  }
  return "relative";
}

inline std::string_view ExtrapolatesName(Extrapolates extrapolates) {
  switch (extrapolates) {
    case Extrapolates::kNo:
      return "no";
    case Extrapolates::kPartly:
      return "partly";
    case Extrapolates::kYes:
      break;
  }
  return "yes";
}

inline std::string_view PictureName(Picture picture) {
  switch (picture) {
    case Picture::kEmbedding:
      return "embedding";
    case Picture::kBias:
      return "bias";
    case Picture::kRotation:
      return "rotation";
    case Picture::kScore:
      break;
  }
  return "score";
}

}  // namespace locus::cli

#endif  // LOCUS_CLI_NAMES_H_

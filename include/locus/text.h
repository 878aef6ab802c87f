// Makes untrusted text safe to print.
#ifndef LOCUS_TEXT_H_
#define LOCUS_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "locus/api.h"

namespace LOCUS_API locus {

// `text` with everything escaped, as \x1b or \u202e, that could control a
// terminal: control characters (C0, DEL and C1), bidirectional formatting
// characters, and bytes that are not UTF-8. Line breaks are kept if
// `keep_lines`.
std::string EscapeControls(std::string_view text, bool keep_lines = false);

// The same for the first `most` bytes, followed by "..." if there are more: for
// names and values in messages.
std::string Printable(std::string_view text, size_t most = 60);

}  // namespace locus

#endif  // LOCUS_TEXT_H_

// Text that others wrote, made safe to print.
#ifndef LOCUS_TEXT_H_
#define LOCUS_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "locus/api.h"

namespace LOCUS_API locus {

// `text` with everything escaped that could steer a terminal: control
// characters (C0, DEL and C1), marks that reverse the direction of writing, and
// bytes that are not UTF-8, as \x1b or \u202e. Line breaks stay where
// `keep_lines` is set.
std::string EscapeControls(std::string_view text, bool keep_lines = false);

// The same of the first `most` bytes, with "..." where more follow: a name or a
// value as it may stand in a message.
std::string Printable(std::string_view text, size_t most = 60);

}  // namespace locus

#endif  // LOCUS_TEXT_H_

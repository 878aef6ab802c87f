#include "locus/text.h"

#include <fmt/format.h>

#include <cstdint>

namespace locus {
namespace {

// A decoded UTF-8 character; bytes = 0 if the text is not valid UTF-8.
struct Decoded {
  uint32_t code = 0;
  size_t bytes = 0;
};

Decoded Decode(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = at(0);
  if (first < 0x80) return {.code = first, .bytes = 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  // 0x80 .. 0xbf are continuation bytes; 0xf8 and above never occur.
  if (first < 0xc0 || first > 0xf7 || text.size() < bytes) return {};
  uint32_t code = first & (0xffU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {.code = code, .bytes = bytes};
}

bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) ||
         // Line and paragraph separators.
         code == 0x2028 || code == 0x2029 ||
         // Directional marks, embeddings, overrides and isolates.
         code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string EscapeControls(std::string_view text, bool keep_lines) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = Decode(text);
    if (bytes == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    if (!IsControl(code) || (code == '\n' && keep_lines)) {
      shown += text.substr(0, bytes);
    } else {
      shown += code < 0x100 ? fmt::format("\\x{:02x}", code)
                            : fmt::format("\\u{:04x}", code);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

std::string Printable(std::string_view text, size_t most) {
  if (text.size() <= most) return EscapeControls(text);
  // Backs up to a character boundary: the first byte of a character is not a
  // continuation byte.
  const auto continues = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  size_t end = most;
  while (end > 0 && most - end < 4 && continues(end)) --end;
  return EscapeControls(text.substr(0, end)) + "...";
}

}  // namespace locus

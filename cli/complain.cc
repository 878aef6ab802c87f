#include "cli/complain.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "locus/text.h"

namespace locus::cli {

void Complain(const std::string& message) {
  std::string line = message;
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  line.erase(line.find_last_not_of(' ') + 1);
  line = fmt::format("locus: {}\n", EscapeControls(line));
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(written);  // there is no one else to tell
}

}  // namespace locus::cli

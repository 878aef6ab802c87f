// locus compare, locus ring: replaced by separate programs.
#include "cli/companion.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "locus/error.h"

namespace locus::cli {
namespace {

struct Companion {
  const char* name;
  const char* help;
  const char* option;  // CMake option that builds it
};

constexpr std::array kCompanions = {
    Companion{"compare",
              "Train small models that differ only in their encoding, and "
              "compare them past their training length.",
              "LOCUS_LAB"},
    Companion{"ring",
              "Check and measure attention over a sequence that is spread over "
              "processes (under mpirun).",
              "LOCUS_RING"},
};

}  // namespace

void AddCompanions(CLI::App& app) {
  for (const Companion& companion : kCompanions) {
    app.add_subcommand(companion.name, companion.help);
  }
}

void BecomeCompanion(int argc, char** argv) {
  if (argc < 2) return;
  for (const Companion& companion : kCompanions) {
    if (std::string_view(argv[1]) != companion.name) continue;
    std::error_code error;
    const std::filesystem::path self =
        std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string program = self.parent_path() / "locus-";
    std::string path = program + companion.name;
    argv[1] = path.data();
    execv(path.c_str(), argv + 1);
    const int why = errno;
    if (why == ENOENT) {
      throw Error(fmt::format(
          "there is no {}, so this build has no '{}'; build it with -D{}=ON",
          path, companion.name, companion.option));
    }
    throw Error(fmt::format("cannot run {}: {}", path, std::strerror(why)));
  }
}

}  // namespace locus::cli

// locus version
#include "locus/version.h"

#include <fmt/format.h>

#include "cli/app.h"

namespace locus::cli {

void AddVersion(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("version", "Print the version.");
  command->footer("Example:\n  locus version --json");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print a JSON object");
  command->callback([&code, json] {
    if (*json) {
      EmitJson({{"name", "locus"}, {"version", Version()}});
    } else {
      Emit(fmt::format("locus {}\n", Version()));
    }
    code = kFine;
  });
}

}  // namespace locus::cli

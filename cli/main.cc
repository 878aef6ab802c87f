// locus: the command line tool.
//
// Every failure is one line on standard error, "locus: ...", and exit code 2.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/companion.h"
#include "cli/complain.h"
#include "locus/version.h"

namespace locus::cli {
namespace {

int Fail(const std::string& message) {
  Complain(message);
  return kBadInput;
}

// "list, show, ...", for messages.
std::string CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

int Main(int argc, char** argv) {
  BecomeCompanion(argc, argv);
  // A reader that closes the pipe (locus list | head -1) causes EPIPE in Emit,
  // and a file beyond the shell's limit causes EFBIG where it is written.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  int code = kFine;
  CLI::App app(
      "Positional encodings for transformer attention: list them, draw them, "
      "check what they can do.",
      "locus");
  app.require_subcommand(1);
  app.footer(
      "Example:\n  locus show rope --out rope.png\n\n"
      "Exit codes: 0 fine, 1 it ran and the answer is no, 2 bad usage or "
      "input.");
  AddList(app, code);
  AddShow(app, code);
  AddCheck(app, code);
  AddExplain(app, code);
  AddConvertLayout(app, code);
  AddBench(app, code);
  AddCompanions(app);
  AddVersion(app, code);
  try {
    const auto named = [&](const CLI::App* command) {
      return command->check_name(argv[1]);
    };
    if (argc > 1 && argv[1][0] != '-' &&
        std::ranges::none_of(app.get_subcommands({}), named)) {
      return Fail(fmt::format("there is no command '{}'; known commands: {}",
                              argv[1], CommandNames(app)));
    }
    app.parse(argc, argv);
    return code;
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    Emit((chosen.empty() ? &app : chosen.front())->help());
    return kFine;
  } catch (const CLI::RequiredError& e) {
    // Thrown by a command, or by the tool if there is no command.
    const auto chosen = app.get_subcommands();
    if (chosen.empty()) {
      return Fail(fmt::format("a command is required: {}; see locus --help",
                              CommandNames(app)));
    }
    return Fail(fmt::format("{}; see locus {} --help", e.what(),
                            chosen.front()->get_name()));
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string said = e.what();  // "--out: 1 required TEXT missing"
    return Fail(
        fmt::format("{} needs a value", said.substr(0, said.find(':'))));
  } catch (const CLI::ExtrasError& e) {
    const std::string said = e.what();  // "The following ... expected: --bad"
    return Fail(fmt::format("unexpected argument{}; see locus --help",
                            said.substr(said.rfind(':'))));
  } catch (const CLI::ParseError& e) {
    return Fail(e.what());
  }
}

// Every failure is one sentence, even if it occurs while another is reported.
int Guarded(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail("not enough memory for an encoding of this size");
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
}

}  // namespace
}  // namespace locus::cli

int main(int argc, char** argv) { return locus::cli::Guarded(argc, argv); }

// locus-ring: the program that `locus ring` runs under mpirun. Every rank runs
// the same command line.
#include <fmt/format.h>

#include <csignal>
#include <string>

#include "locus/files.h"
#include "locus/text.h"
#include "ring/agreement/agree.h"
#include "ring/cli/case.h"
#include "ring/cli/session.h"

namespace locus::ring {
namespace {

// The command of a rank; on other machines the program may have another path.
std::string Command(int argc, char** argv) {
  std::string command = "locus ring";
  for (int n = 1; n < argc; ++n) command += std::string(" ") + argv[n];
  return fmt::format("'{}'", EscapeControls(command));
}

int Start(int argc, char** argv) {
  CheckArgs check;
  BenchArgs bench;
  CLI::App app(
      "Ring attention: one sequence over several ranks of MPI.\n"
      "Run it by mpirun.",
      "locus ring");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  mpirun -n 4 locus ring check\n"
      "  mpirun -n 2 locus ring bench rope --length 16384\n\n"
      "Exit codes: 0 fine, 1 it ran and the answer is no, or a rank was lost; "
      "2 bad usage or input.");
  CLI::App* checks = app.add_subcommand(
      "check", "compare with the result of a single process");
  checks->add_option("encodings", check.encodings,
                     "names of encodings; all of them if not given");
  checks
      ->add_option("--sharding", check.shardings,
                   "contiguous, zigzag, round-robin; all if not given")
      ->delimiter(',');
  checks->add_option(
      "--sample", check.sample,
      "compare so many queries per rank, forward alone, without ever holding "
      "the whole sequence");
  checks->add_flag("--operands", check.operands,
                   "also bring sinks, a bias per key and per pair, a mask, a "
                   "prefix and dropout");
  check.common.AddTo(*checks);
  CLI::App* benches = app.add_subcommand(
      "bench", "time, bytes moved, overlap, memory per rank, efficiency");
  benches->add_option("encoding", bench.encoding, "name of an encoding")
      ->capture_default_str();
  benches
      ->add_option("--sharding", bench.sharding,
                   "contiguous, zigzag or round-robin")
      ->capture_default_str();
  benches
      ->add_option("--ranks", bench.ranks,
                   "numbers of ranks; 1, 2, 4, ... up to all if not given")
      ->delimiter(',');
  benches->add_option("--repeat", bench.repeats, "rounds; the best counts")
      ->capture_default_str();
  benches->add_flag("--full", bench.full, "every query sees every key");
  benches->add_flag("--backward", bench.backward, "also the backward pass");
  bench.common.AddTo(*benches);
  bool help = false;
  std::string wrong;
  double deadline_seconds = kDeadlineSeconds;
  try {
    app.parse(argc, argv);
    const CaseArgs& given = checks->parsed() ? check.common : bench.common;
    deadline_seconds = given.DeadlineSeconds();
  } catch (const CLI::CallForHelp&) {
    help = true;
  } catch (const CLI::ParseError& e) {
    wrong = fmt::format("{}; see locus ring --help", e.what());
  } catch (const Error& e) {
    wrong = e.what();
  }
  return RunSession(deadline_seconds, [&] {
    const Group all(MPI_COMM_WORLD, deadline_seconds);
    Agree(all, wrong, {{"command", Command(argc, argv)}});
    if (help) {
      const auto chosen = app.get_subcommands();
      OnFirstRank(all, [&] {
        cli::Emit((chosen.empty() ? &app : chosen.front())->help());
      });
      return cli::kFine;
    }
    // Checked now rather than after minutes of work.
    const CaseArgs& given = checks->parsed() ? check.common : bench.common;
    OnFirstRank(all, [&] {
      if (!given.save.empty()) CheckOutput(given.save);
    });
    return checks->parsed() ? Check(check) : Bench(bench);
  });
}

}  // namespace
}  // namespace locus::ring

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return locus::ring::Start(argc, argv);
}

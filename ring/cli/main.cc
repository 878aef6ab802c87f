// locus-ring: what `locus ring` runs, under mpirun.
//
// Every rank runs the same command line. What all ranks find wrong is said by
// rank 0 alone; a lost rank by each one that notices.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>

#include "ring/agree.h"
#include "ring/cli/case.h"

namespace locus::ring {
namespace {

// mpirun ends the job when the first rank fails, and drops what others have
// just said: a rank whose word does not count stays so much longer.
constexpr unsigned kLastWordsSeconds = 1;

int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void Say(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  // One write a line: lines of several ranks do not mix.
  const std::string line = fmt::format("locus: {}\n", message);
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(written);  // there is no one else to tell
}

// The same on every rank.
int FailTogether(const std::string& message) {
  if (WorldRank() == 0) {
    Say(message);
  } else {
    sleep(kLastWordsSeconds);
  }
  return cli::kBadInput;
}

// On this rank alone: the others would wait for it.
[[noreturn]] void FailAlone(const std::string& message) {
  Say(message);
  sleep(kLastWordsSeconds);
  MPI_Abort(MPI_COMM_WORLD, cli::kAnswerIsNo);
  std::_Exit(cli::kAnswerIsNo);
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
      "compare so many queries a rank, forward alone, without ever holding "
      "the whole sequence");
  check.common.AddTo(*checks);
  CLI::App* benches = app.add_subcommand(
      "bench", "time, bytes moved, overlap, memory a rank, efficiency");
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    help = true;
  } catch (const CLI::ParseError& e) {
    wrong = fmt::format("{}; see locus ring --help", e.what());
  }
  int code = cli::kFine;
  try {
    const Group all(MPI_COMM_WORLD);
    Agree(all, wrong, {});
    if (help) {
      const auto chosen = app.get_subcommands();
      if (all.rank() == 0) {
        cli::Emit((chosen.empty() ? &app : chosen.front())->help());
      }
    } else {
      code = checks->parsed() ? Check(check) : Bench(bench);
    }
  } catch (const LostRank& e) {
    FailAlone(e.what());
  } catch (const Error& e) {
    code = FailTogether(e.what());
  }
  MPI_Finalize();
  return code;
}

}  // namespace
}  // namespace locus::ring

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  try {
    return locus::ring::Start(argc, argv);
  } catch (const std::bad_alloc&) {
    locus::ring::FailAlone(
        fmt::format("rank {} has not enough memory for its part",
                    locus::ring::WorldRank()));
  } catch (const std::exception& e) {
    locus::ring::FailAlone(
        fmt::format("rank {}: {}", locus::ring::WorldRank(), e.what()));
  }
}

// locus-compare: the program that `locus compare` runs.
//
// Every failure is one line on standard error, "locus: ...", and exit code 2.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <string>

#include "cli/complain.h"
#include "lab/ranks/launch.h"
#include "lab/ranks/ranks.h"
#include "lab/report/export.h"
#include "lab/study/compare.h"
#include "lab/study/config.h"
#include "lab/study/worker.h"
#include "locus/error.h"
#include "locus/threads.h"

namespace locus::lab {
namespace {

struct Arguments {
  std::map<std::string, std::string> texts = {};  // of options with a value
  std::string config = {};
  bool quick = false;
  bool full = false;
  bool resume = false;
  bool fresh = false;
  bool continue_existing = false;
  bool plot_only = false;
  bool dry_run = false;
  bool json = false;
  std::string save_every = "1";
  std::string deadline = {};
  WorkerOptions worker = {};
};

constexpr const char* kExamples =
    "Examples:\n"
    "  locus compare --quick\n"
    "  locus compare --encodings alibi,rope --task text --seeds 5\n"
    "  locus compare --encodings 'rope{base=100},rope{base=500000},mine.pt'\n"
    "  locus compare --plot-only --export csv,pdf\n"
    "  locus compare --task copy --lengths 32,64,128,512 --out copying\n"
    "  locus compare --resume\n"
    "  mpirun -n 4 locus compare --quick\n\n"
    "Under mpirun, the ranks train each run together, one run after another, "
    "each "
    "rank on a part of every batch. Results equal those of one process up to "
    "rounding."
    "\n\n"
    "Exit codes: 0 fine, 1 some runs failed or a rank was lost, 2 bad usage or "
    "input, 130 stopped by Ctrl-C.";

std::string TaskList() {
  std::string text = "Tasks:\n";
  for (const TaskInfo& task : Tasks()) {
    text += fmt::format("  {:<20} {}\n", task.name, task.what);
  }
  return text;
}

void AddOptions(CLI::App& app, Arguments& a) {
  for (const OptionRow& row : OptionRows()) {
    app.add_option(std::string(row.flags), a.texts[OptionName(row)],
                   std::string(row.help))
        ->type_name(std::string(row.value));
  }
  app.add_option("--config", a.config, "JSON file with any of the above")
      ->type_name("FILE");
  app.add_flag("--quick", a.quick, "a first look: about 2 minutes on 2 cores");
  app.add_flag("--full", a.full, "every encoding, more seeds and steps: hours");
  app.add_flag("--resume", a.resume, "continue the study in the folder");
  app.add_flag("--fresh", a.fresh, "discard an unfinished study in the folder");
  app.add_flag("--continue", a.continue_existing,
               "continue a study of the same settings, or start one");
  app.add_flag("--plot-only", a.plot_only,
               "redraw the report from results.json");
  app.add_flag("--dry-run", a.dry_run, "print the jobs and how long they take");
  app.add_flag("--json", a.json, "print results.json instead of tables");
  app.add_option("--save-every", a.save_every,
                 "seconds between checkpoints; 0 for every step")
      ->type_name("X")
      ->capture_default_str();
  app.add_option("--deadline", a.deadline,
                 "seconds that ranks of mpirun wait for each other; default "
                 "300")
      ->type_name("X");
  // Internal options of worker processes.
  app.add_option("--worker", a.worker.job)->group("");
  app.add_option("--events", a.worker.events)->group("");
}

Given GivenBy(const CLI::App& app, const Arguments& a) {
  Given given;
  if (!a.config.empty()) given = ReadConfig(a.config);
  for (const OptionRow& row : OptionRows()) {
    const std::string name = OptionName(row);
    if (app.count("--" + name) > 0) {
      given[name] = {.text = a.texts.at(name), .where = "--" + name};
    }
  }
  if (a.quick && a.full) throw Error("--quick and --full exclude each other");
  if (a.quick) given["preset"] = {.text = "quick", .where = "--quick"};
  if (a.full) given["preset"] = {.text = "full", .where = "--full"};
  return given;
}

Existing ExistingBy(const Arguments& a) {
  if (a.resume && a.fresh) {
    throw Error("--resume and --fresh exclude each other");
  }
  if (a.resume) return Existing::kResume;
  if (a.fresh) return Existing::kReplace;
  return a.continue_existing ? Existing::kContinue : Existing::kRefuse;
}

constexpr double kMonth = 30.0 * 86400.0;

double SaveEvery(const Arguments& a) {
  return Number({.text = a.save_every, .where = "--save-every"}, 0.0, kMonth);
}

CompareOptions OptionsBy(const CLI::App& app, const Arguments& a, int ranks,
                         const std::string& command) {
  CompareOptions options{.request = {.folder = "results",
                                     .given = GivenBy(app, a),
                                     .command = command,
                                     .ranks = ranks},
                         .existing = ExistingBy(a),
                         .save_every = SaveEvery(a),
                         .json = a.json};
  const Given& given = options.request.given;
  if (const auto at = given.find("out"); at != given.end()) {
    options.request.folder = at->second.text;
  }
  if (const auto at = given.find("export"); at != given.end()) {
    options.formats = ReadFormats(at->second);
  }
  if (ranks == 1) {
    options.workers = UsableCpus();
  }
  if (const auto at = given.find("jobs"); at != given.end()) {
    options.workers = static_cast<int>(WholeNumber(at->second, 1, 1024));
  }
  if (ranks > 1 && options.workers > 1) {
    throw Error(fmt::format(
        "--jobs must be 1 under mpirun, got {}: ranks share each run, and runs "
        "follow one another",
        options.workers));
  }
  return options;
}

// How long ranks wait for each other; see ring_group.h.
constexpr double kDeadlineSeconds = 300.0;

double DeadlineOf(const Arguments& a) {
  if (a.deadline.empty()) return kDeadlineSeconds;
  return Number({.text = a.deadline, .where = "--deadline"}, 1e-3, kMonth);
}

int Fail(const std::string& message) {
  cli::Complain(message);
  return kBadInput;
}

// Fails unless every rank has the same command line.
void CheckCommand(const Ranks& ranks, const std::string& command) {
  const std::vector<std::string> commands = ranks.Gather(command);
  for (size_t rank = 1; rank < commands.size(); ++rank) {
    if (commands[rank] == commands[0]) continue;
    throw Error(
        fmt::format("every rank must be given the same options: rank 0 runs "
                    "'{}' and rank {} '{}'",
                    commands[0], rank, commands[rank]));
  }
}

// The parsed command line.
struct Asked {
  const CLI::App& app;
  Arguments arguments = {};
  std::string command = {};
  bool help = false;
  std::string wrong = {};  // one sentence, if it could not be parsed
};

// Runs the command, in one process or on every rank.
int Serve(const Asked& asked, const Ranks& ranks) {
  CompareOptions options;
  OnAllRanks(ranks, [&] {
    if (!asked.wrong.empty()) throw Error(asked.wrong);
    if (asked.help) return;
    options =
        OptionsBy(asked.app, asked.arguments, ranks.size(), asked.command);
  });
  CheckCommand(ranks, asked.command);
  if (asked.help) {
    return OnFirstRank(ranks, [&] {
      const std::string help = asked.app.help();
      if (std::fputs(help.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
        throw Error("cannot write to standard output");
      }
      return kSuccess;
    });
  }
  if (asked.arguments.plot_only) {
    return OnFirstRank(ranks, [&] { return Redraw(options); });
  }
  if (asked.arguments.dry_run) return ShowPlan(options, ranks);
  return ranks.size() > 1 ? CompareOnRanks(options, ranks) : Compare(options);
}

int ServeAlone(const Asked& asked) {
  try {
    return Serve(asked, SingleProcess());
  } catch (const std::bad_alloc&) {
    return Fail("not enough memory");
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Trains small transformers that differ only in their positional "
      "encoding, "
      "tests them at longer lengths, and draws the answer: "
      "results/report.html.",
      "locus compare");
  Asked asked{.app = app, .command = "locus compare"};
  for (int n = 1; n < argc; ++n) asked.command += std::string(" ") + argv[n];
  Arguments& arguments = asked.arguments;
  AddOptions(app, arguments);
  app.footer(TaskList() + "\n" + kExamples);
  double deadline_seconds = kDeadlineSeconds;
  try {
    app.parse(argc, argv);
    deadline_seconds = DeadlineOf(arguments);
  } catch (const CLI::CallForHelp&) {
    asked.help = true;
  } catch (const CLI::ParseError& e) {
    asked.wrong = fmt::format("{}; see locus compare --help", e.what());
  } catch (const Error& e) {
    asked.wrong = e.what();
  }
  if (!arguments.worker.job.empty() && asked.wrong.empty()) {
    arguments.worker.folder = arguments.texts["out"];
    arguments.worker.save_every = SaveEvery(arguments);
    return RunWorker(arguments.worker);
  }
  const std::optional<Launch> launch = FindLaunch();
  if (!launch) return ServeAlone(asked);
  return RunOnRanks(*launch, deadline_seconds,
                    [&](const Ranks& ranks) { return Serve(asked, ranks); });
}

}  // namespace
}  // namespace locus::lab

int main(int argc, char** argv) { return locus::lab::Main(argc, argv); }

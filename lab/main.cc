// locus-compare: what `locus compare` runs.
//
// Every failure is one line on standard error, "locus: ...", and exit code 2.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <string>
#include <thread>

#include "lab/compare.h"
#include "lab/compare_worker.h"
#include "lab/config.h"
#include "lab/threads.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

struct Arguments {
  std::map<std::string, std::string> texts = {};  // of options with a value
  std::string config = {};
  bool quick = false;
  bool full = false;
  bool resume = false;
  bool fresh = false;
  bool keep_on = false;
  bool plot_only = false;
  bool dry_run = false;
  bool json = false;
  double save_every = 1.0;
  WorkerOptions worker = {};
};

constexpr const char* kExamples =
    "Examples:\n"
    "  locus compare --quick\n"
    "  locus compare --encodings alibi,rope --task text --seeds 5\n"
    "  locus compare --task copy --lengths 32,64,128,512 --out copying\n"
    "  locus compare --resume\n\n"
    "Exit codes: 0 fine, 1 some runs failed, 2 bad usage or input, 130 stopped "
    "by Ctrl-C.";

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
  app.add_flag("--continue", a.keep_on,
               "continue a study of the same settings, or start one");
  app.add_flag("--plot-only", a.plot_only,
               "draw the report again from results.json");
  app.add_flag("--dry-run", a.dry_run, "print the jobs and the time they take");
  app.add_flag("--json", a.json, "print results.json instead of tables");
  app.add_option("--save-every", a.save_every,
                 "seconds between checkpoints; 0 for every step")
      ->type_name("X")
      ->capture_default_str();
  // How the program calls itself for each job.
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
  return a.keep_on ? Existing::kContinue : Existing::kRefuse;
}

CompareOptions OptionsBy(const CLI::App& app, const Arguments& a, int argc,
                         char** argv) {
  CompareOptions options{.given = GivenBy(app, a),
                         .existing = ExistingBy(a),
                         .save_every = a.save_every,
                         .json = a.json};
  if (const auto at = options.given.find("out"); at != options.given.end()) {
    options.folder = at->second.text;
  }
  const auto cores =
      static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.workers = cores;
  if (const auto at = options.given.find("jobs"); at != options.given.end()) {
    options.workers = static_cast<int>(WholeNumber(at->second, 1, 1024));
  }
  options.command = "locus compare";
  for (int n = 1; n < argc; ++n) options.command += std::string(" ") + argv[n];
  return options;
}

int Fail(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "locus: {}\n", message);
  return kBadInput;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Trains small transformers that differ only in their positional "
      "encoding, "
      "tests them at longer lengths, and draws the answer: "
      "results/report.html.",
      "locus compare");
  Arguments arguments;
  AddOptions(app, arguments);
  app.footer(TaskList() + "\n" + kExamples);
  try {
    app.parse(argc, argv);
    if (!arguments.worker.job.empty()) {
      arguments.worker.folder = arguments.texts["out"];
      arguments.worker.save_every = arguments.save_every;
      return RunWorker(arguments.worker);
    }
    const CompareOptions options = OptionsBy(app, arguments, argc, argv);
    if (arguments.plot_only) return Redraw(options);
    if (arguments.dry_run) return ShowPlan(options);
    return Compare(options);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kFine;
  } catch (const CLI::ParseError& e) {
    return Fail(fmt::format("{}; see locus compare --help", e.what()));
  } catch (const std::bad_alloc&) {
    return Fail("not enough memory");
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
}

}  // namespace
}  // namespace locus::lab

int main(int argc, char** argv) {
  locus::lab::SettleBlas(argv);
  return locus::lab::Main(argc, argv);
}

// The settings of a study: a preset, modified by options of the command line or
// of a JSON file with the same names.
#ifndef LOCUS_LAB_STUDY_CONFIG_H_
#define LOCUS_LAB_STUDY_CONFIG_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/study/store.h"
#include "lab/train/run.h"

namespace locus::lab {

// How one task is trained, and with which encodings.
struct TaskSettings {
  std::string name = {};
  // "rope", "rope{base=100}", or a key of Settings::files.
  std::vector<std::string> encodings = {};
  std::vector<uint64_t> seeds = {};
  int64_t train_length = 0;
  std::vector<int64_t> lengths = {};  // of evaluations, ascending
  int64_t steps = 0;
  int64_t batch = 0;
  double learning_rate = 0;
  int64_t score_tokens = 0;  // tokens that an evaluation reads at each length
};

// RoPE models of the task "text", extended to a longer context.
struct ExtensionSettings {
  std::vector<std::string> methods = {};  // empty: no extensions
  std::vector<uint64_t> seeds = {};       // of the models that are extended
  double factor = 4;
  int64_t fine_tune_steps = 0;  // in addition to 0
};

// A learning rate for each encoding, chosen before its training.
struct TuningSettings {
  std::vector<double> factors = {};  // of the task's rate; empty: only that
  double steps = 0.25;  // share of the task's, for each rate that is tried
};

// Seconds per step with nothing else running.
struct CostSettings {
  std::vector<int64_t> lengths = {};  // empty: no measurements
  std::vector<std::string> encodings = {};
  int64_t tokens = 0;  // per step: the batch is tokens / length
  int64_t rounds = 0;  // steps of each model, interleaved
};

struct Settings {
  std::map<std::string, std::string> files = {};  // of encodings, by name
  ModelKind kind = ModelKind::kDecoder;
  int64_t layers = 0;
  int64_t model_dim = 0;
  int64_t heads = 0;
  std::vector<TaskSettings> tasks = {};
  TuningSettings tuning = {};
  ExtensionSettings extension = {};
  CostSettings cost = {};
  std::string corpus = {};  // a file; empty: the default one
  int threads = 1;          // of one run, on each rank
  int ranks = 1;  // ranks that share each run; set by mpirun, not by an option

  // Every encoding that is trained or measured, in the order of the list, with
  // variants in order of appearance; those of files come last.
  std::vector<std::string> Encodings() const;
};

// Steps of a run that tries a learning rate.
int64_t TuningSteps(const Settings& settings, const TaskSettings& task);

// An option's text, and where it was given ("--steps", "'steps' in FILE").
struct GivenValue {
  std::string text = {};
  std::string where = {};
};
// By name, without leading dashes.
using Given = std::map<std::string, GivenValue>;

// An option with a value.
struct OptionRow {
  std::string_view flags;  // as CLI11 reads them, "--tasks,--task"
  std::string_view value;  // placeholder of the value in the help
  std::string_view help;
  bool of_study = true;  // false: only affects how it is run, not the results
};
std::span<const OptionRow> OptionRows();
// "tasks" of "--tasks,--task".
std::string OptionName(const OptionRow& row);
// The options in `given` that belong to the study.
Given StudyOptions(const Given& given);

// Numbers in an option's text; throw Error that says where it was given.
int64_t WholeNumber(const GivenValue& given, int64_t least, int64_t most);
double Number(const GivenValue& given, double least, double most);
// "a,b{c,d}" as {"a", "b{c,d}"}; trims blanks and drops empty words.
std::vector<std::string> Words(std::string_view text);

// The names in --encodings, with files among them as absolute paths.
std::string AbsoluteEncodings(const std::string& text);

// The options of a JSON file. Throws Error for an unknown name.
Given ReadConfig(const std::string& path);

// The whole study, based on the preset that the option "preset" names. Throws
// Error for an invalid value. Ignores options that do not belong to the study.
Settings Resolve(const Given& given);

// Settings in the format of results.json. `corpus` is from CorpusJson, or null.
Json SettingsJson(const Settings& settings, const Json& corpus);

// The first setting in which two differ, as a sentence; empty if there is none.
std::string FirstDifference(const Json& stored, const Json& now);

std::string_view KindName(ModelKind kind);
std::string_view PathName(AttentionPath path);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_CONFIG_H_

// What a study is made of: three ready ones, changed by options of the command
// line or of a JSON file with the same names.
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

// How one task is trained and by which encodings.
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
  int64_t score_tokens = 0;  // read by an evaluation at each length
};

// RoPE models of the task "text", stretched to a longer context.
struct ExtensionSettings {
  std::vector<std::string> methods = {};  // empty: none of it
  std::vector<uint64_t> seeds = {};       // of the models that are extended
  double factor = 4;
  int64_t fine_tune_steps = 0;  // besides none at all
};

// A learning rate for each encoding, chosen before it is trained.
struct TuningSettings {
  std::vector<double> factors = {};  // of the task's own rate; empty: that one
  double steps = 0.25;               // of the task's, for each that is tried
};

// Seconds per step with nothing else running.
struct CostSettings {
  std::vector<int64_t> lengths = {};  // empty: none of it
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
  int ranks = 1;            // that share each run; not an option: mpirun's

  // Every encoding that is trained or measured, in the order of the list, its
  // variants in their own; those of files come last.
  std::vector<std::string> Encodings() const;
};

// Steps of one run that tries a learning rate.
int64_t TuningSteps(const Settings& settings, const TaskSettings& task);

// An option as it was written, and where ("--steps", "'steps' in FILE").
struct GivenValue {
  std::string text = {};
  std::string where = {};
};
// By name without dashes in front.
using Given = std::map<std::string, GivenValue>;

// An option with a value.
struct OptionRow {
  std::string_view flags;  // as CLI11 reads them, "--tasks,--task"
  std::string_view value;  // what stands for the value in the help
  std::string_view help;
  bool of_study = true;  // false: about how it is run; changes no answer
};
std::span<const OptionRow> OptionRows();
// "tasks" of "--tasks,--task".
std::string OptionName(const OptionRow& row);
// Those of `given` that belong to the study.
Given StudyOptions(const Given& given);

// Numbers in an option's text; throw Error that says where it was written.
int64_t WholeNumber(const GivenValue& given, int64_t least, int64_t most);
double Number(const GivenValue& given, double least, double most);
// "a,b{c,d}" as {"a", "b{c,d}"}; blanks around them and empty ones are dropped.
std::vector<std::string> Words(std::string_view text);

// The names of --encodings, with the files among them made absolute.
std::string AbsoluteEncodings(const std::string& text);

// The options of a JSON file. Throws Error for a name that is none.
Given ReadConfig(const std::string& path);

// The whole study, from the one that the option "preset" names.
// Throws Error for a value that cannot be right. Options that are not of the
// study are passed over.
Settings Resolve(const Given& given);

// As results.json has them. `corpus` is what CorpusJson says, or null.
Json SettingsJson(const Settings& settings, const Json& corpus);

// The first setting in which two differ, as one sentence; empty if none.
std::string FirstDifference(const Json& stored, const Json& now);

std::string_view KindName(ModelKind kind);
std::string_view PathName(AttentionPath path);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_CONFIG_H_

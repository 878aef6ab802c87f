// Applies options to a preset.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/study/preset.h"
#include "lab/train/scripted.h"
#include "locus/descriptor.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

using Names = std::vector<std::string>;

// The largest sensible numbers; anything beyond is a typing error.
constexpr int64_t kMostLength = 1 << 20;
constexpr int64_t kMostSteps = 10'000'000;
constexpr int64_t kMostBatch = 65536;
constexpr int64_t kMostTokens = int64_t{1} << 32;
constexpr int64_t kMostDim = 16384;

const GivenValue* Find(const Given& given, const char* name) {
  const auto at = given.find(name);
  return at == given.end() ? nullptr : &at->second;
}

Names EveryEncoding() {
  Names names;
  for (const EncodingInfo& info : Encodings()) names.emplace_back(info.name);
  return names;
}

Names EveryTask() {
  Names names;
  for (const TaskInfo& task : Tasks()) names.emplace_back(task.name);
  return names;
}

// Names of a list, without repeats; "all" means every one. `read` returns the
// canonical spelling of a word, or throws.
template <typename Read>
Names ReadNames(const GivenValue& given, const Names& every, Read read) {
  Names names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& word : Words(given.text)) {
    if (word == "all") {
      std::ranges::for_each(every, add);
    } else {
      add(read(word));
    }
  }
  if (names.empty()) {
    throw Error(fmt::format("{} must name at least one of {}", given.where,
                            fmt::join(every, ", ")));
  }
  return names;
}

// Integers of a list, ascending, without repeats.
std::vector<int64_t> ReadNumbers(const GivenValue& given, int64_t least,
                                 int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& word : Words(given.text)) {
    numbers.push_back(
        WholeNumber({.text = word, .where = given.where}, least, most));
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.empty()) {
    throw Error(fmt::format("{} must have at least one number, got '{}'",
                            given.where, given.text));
  }
  return numbers;
}

std::vector<uint64_t> FirstSeeds(int64_t count) {
  std::vector<uint64_t> seeds;
  for (int64_t n = 1; n <= count; ++n)
    seeds.push_back(static_cast<uint64_t>(n));
  return seeds;
}

std::vector<uint64_t> ReadSeeds(const GivenValue& given) {
  constexpr int64_t kMostSeeds = 1000;
  if (given.text.find(',') == std::string::npos) {
    return FirstSeeds(WholeNumber(given, 1, kMostSeeds));
  }
  const auto numbers = ReadNumbers(given, 0, UINT32_MAX);
  return {numbers.begin(), numbers.end()};
}

int64_t Scaled(int64_t number, double share) {
  return std::max<int64_t>(
      1,
      static_cast<int64_t>(std::llround(static_cast<double>(number) * share)));
}

// A task with the values of the preset.
TaskSettings FromPreset(const TaskInfo& task, const Preset& preset) {
  const bool text = task.uses_corpus;
  const TaskDefaults& own = task.defaults;
  TaskSettings t{
      .name = std::string(task.name),
      .encodings = text ? preset.text_encodings : preset.synthetic_encodings,
      .seeds = FirstSeeds(text ? preset.text_seeds : preset.synthetic_seeds),
      .train_length = own.train_length,
      .lengths = own.lengths,
      .steps =
          Scaled(own.steps, text ? preset.text_steps : preset.synthetic_steps),
      .batch = own.batch,
      .learning_rate = own.learning_rate,
      .score_tokens = Scaled(own.score_tokens, preset.score)};
  if (t.encodings.empty()) t.encodings = EveryEncoding();
  return t;
}

// A variant of the list whose options are valid for such a model.
std::string ReadVariant(const std::string& word, const Settings& settings) {
  const Variant variant = FindVariant(word);
  if (!variant.options.empty()) {
    variant.info->example({.heads = settings.heads,
                           .head_dim = settings.model_dim / settings.heads,
                           .options = variant.options});
  }
  return variant.Name();
}

// The name of an encoding in a file, which is added to the study's encodings.
std::string ReadFile(const std::string& path, Settings& settings) {
  const auto scripted = ScriptedEncoding::Open(path);
  scripted->CheckHeads(settings.heads);
  const std::string& name = scripted->name();
  const auto names = EveryEncoding();
  if (std::ranges::find(names, name) != names.end()) {
    throw Error(
        fmt::format("{} has the name of a built-in encoding; rename it", path));
  }
  const auto [at, added] = settings.files.emplace(name, path);
  if (!added && at->second != path) {
    throw Error(fmt::format("{} and {} have the same name; rename one of them",
                            at->second, path));
  }
  return name;
}

void Change(TaskSettings& task, const Given& given, Settings& settings) {
  if (const auto* g = Find(given, "encodings")) {
    task.encodings =
        ReadNames(*g, EveryEncoding(), [&](const std::string& word) {
          return ScriptedEncoding::IsFile(word) ? ReadFile(word, settings)
                                                : ReadVariant(word, settings);
        });
  }
  if (const auto* g = Find(given, "seeds")) task.seeds = ReadSeeds(*g);
  if (const auto* g = Find(given, "steps")) {
    task.steps = WholeNumber(*g, 1, kMostSteps);
  }
  if (const auto* g = Find(given, "train-length")) {
    const int64_t before = task.train_length;
    task.train_length = WholeNumber(*g, 2, kMostLength);
    for (int64_t& length : task.lengths) {
      length = std::max<int64_t>(2, length * task.train_length / before);
    }
  }
  if (const auto* g = Find(given, "lengths")) {
    task.lengths = ReadNumbers(*g, 2, kMostLength);
  }
  if (const auto* g = Find(given, "batch")) {
    task.batch = WholeNumber(*g, 1, kMostBatch);
  }
  if (const auto* g = Find(given, "learning-rate")) {
    task.learning_rate = Number(*g, 1e-8, 10.0);
  }
  if (const auto* g = Find(given, "score-tokens")) {
    task.score_tokens = WholeNumber(*g, 1, kMostTokens);
  }
}

TuningSettings ReadTuning(const Given& given) {
  TuningSettings tuning;
  const auto* g = Find(given, "tune");
  if (!g || g->text == "off") return tuning;
  if (g->text == "on") {
    tuning.factors = {0.5, 1, 2};
    return tuning;
  }
  for (const std::string& word : Words(g->text)) {
    tuning.factors.push_back(
        Number({.text = word, .where = g->where}, 1e-3, 1e3));
  }
  std::ranges::sort(tuning.factors);
  tuning.factors.erase(std::ranges::unique(tuning.factors).begin(),
                       tuning.factors.end());
  if (tuning.factors.empty()) {
    throw Error(fmt::format("{} must be on, off or numbers, got '{}'", g->where,
                            g->text));
  }
  return tuning;
}

// The task whose RoPE models are extended, or nullptr.
const TaskSettings* ExtendedTask(const std::vector<TaskSettings>& tasks) {
  for (const TaskSettings& task : tasks) {
    if (FindTask(task.name).uses_corpus &&
        std::ranges::find(task.encodings, "rope") != task.encodings.end()) {
      return &task;
    }
  }
  return nullptr;
}

ExtensionSettings ReadExtension(const Preset& preset, const Given& given,
                                const TaskSettings* task) {
  const Names every = {"none", "linear", "ntk", "dynamic", "yarn"};
  ExtensionSettings extension{.fine_tune_steps = preset.fine_tune_steps};
  if (task && preset.extends) extension.methods = every;
  if (const auto* g = Find(given, "extend"); g && g->text == "off") {
    extension.methods.clear();
  } else if (g) {
    extension.methods = ReadNames(*g, every, [&](const std::string& name) {
      if (std::ranges::find(every, name) == every.end()) {
        throw Error(fmt::format("{} must be off or of {}, got '{}'", g->where,
                                fmt::join(every, ", "), name));
      }
      return name;
    });
    if (!task) {
      throw Error(
          fmt::format("{} needs a RoPE model of text: add rope to "
                      "--encodings and text to --tasks",
                      g->where));
    }
  }
  if (extension.methods.empty()) return extension;
  extension.seeds = task->seeds;
  if (!preset.extend_every_seed && !Find(given, "seeds")) {
    extension.seeds.resize(1);
  }
  if (const auto* g = Find(given, "factor")) {
    extension.factor = Number(*g, 1.0, 1024.0);
  }
  if (const auto* g = Find(given, "fine-tune-steps")) {
    extension.fine_tune_steps = WholeNumber(*g, 0, kMostSteps);
  }
  return extension;
}

CostSettings ReadCost(const Preset& preset, const Given& given,
                      const TaskSettings& first) {
  CostSettings cost{.lengths = preset.cost_lengths,
                    .encodings = preset.cost_encodings,
                    // As many as a training step of the task.
                    .tokens = first.batch * first.train_length,
                    .rounds = preset.cost_rounds};
  if (const auto* g = Find(given, "cost-lengths")) {
    cost.lengths = g->text == "off" ? std::vector<int64_t>{}
                                    : ReadNumbers(*g, 2, kMostLength);
  }
  if (Find(given, "encodings") || cost.encodings.empty()) {
    cost.encodings = first.encodings;
  }
  // The baseline of the cost of position.
  if (std::ranges::find(cost.encodings, "none") == cost.encodings.end()) {
    cost.encodings.insert(cost.encodings.begin(), "none");
  }
  if (cost.lengths.empty()) cost.encodings.clear();
  return cost;
}

void ReadModel(const Given& given, Settings& settings) {
  const RunSpec usual;
  settings.layers = usual.layers;
  settings.model_dim = usual.model_dim;
  settings.heads = usual.heads;
  if (const auto* g = Find(given, "kind")) {
    if (g->text != "decoder" && g->text != "encoder") {
      throw Error(fmt::format("{} must be decoder or encoder, got '{}'",
                              g->where, g->text));
    }
    settings.kind =
        g->text == "decoder" ? ModelKind::kDecoder : ModelKind::kEncoder;
  }
  if (const auto* g = Find(given, "layers")) {
    settings.layers = WholeNumber(*g, 1, 1024);
  }
  if (const auto* g = Find(given, "model-dim")) {
    settings.model_dim = WholeNumber(*g, 2, kMostDim);
  }
  if (const auto* g = Find(given, "heads")) {
    settings.heads = WholeNumber(*g, 1, kMostDim);
  }
  if (settings.model_dim % settings.heads != 0) {
    throw Error(
        fmt::format("--model-dim must be a multiple of --heads, got {} "
                    "and {}",
                    settings.model_dim, settings.heads));
  }
}

Json TaskJson(const TaskSettings& task) {
  return {{"name", task.name},
          {"encodings", task.encodings},
          {"seeds", task.seeds},
          {"train_length", task.train_length},
          {"lengths", task.lengths},
          {"steps", task.steps},
          {"batch", task.batch},
          {"learning_rate", task.learning_rate},
          {"score_tokens", task.score_tokens}};
}

Json FilesJson(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [name, path] : settings.files) {
    json[name] = ScriptedEncoding::Open(path)->sha256();
  }
  return json;
}

}  // namespace

std::vector<std::string> Settings::Encodings() const {
  Names given;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(given, name) == given.end()) given.push_back(name);
  };
  for (const TaskSettings& task : tasks) {
    std::ranges::for_each(task.encodings, add);
  }
  std::ranges::for_each(cost.encodings, add);
  const Names listed = EveryEncoding();
  std::ranges::stable_sort(given, {}, [&](const std::string& name) {
    return std::ranges::find(listed, name.substr(0, name.find('{'))) -
           listed.begin();
  });
  return given;
}

int64_t TuningSteps(const Settings& settings, const TaskSettings& task) {
  return Scaled(task.steps, settings.tuning.steps);
}

Settings Resolve(const Given& given) {
  const Preset preset = FindPreset(given);
  Settings settings;
  ReadModel(given, settings);
  Names tasks = preset.tasks.empty() ? EveryTask() : preset.tasks;
  if (const auto* g = Find(given, "tasks")) {
    tasks = ReadNames(*g, EveryTask(), [](const auto& name) {
      return std::string(FindTask(name).name);
    });
  }
  for (const std::string& name : tasks) {
    settings.tasks.push_back(FromPreset(FindTask(name), preset));
    Change(settings.tasks.back(), given, settings);
  }
  settings.tuning = ReadTuning(given);
  settings.extension =
      ReadExtension(preset, given, ExtendedTask(settings.tasks));
  settings.cost = ReadCost(preset, given, settings.tasks.front());
  if (const auto* g = Find(given, "corpus")) settings.corpus = g->text;
  if (const auto* g = Find(given, "threads")) {
    settings.threads = static_cast<int>(WholeNumber(*g, 1, 1024));
  }
  return settings;
}

Json SettingsJson(const Settings& settings, const Json& corpus) {
  const TaskSettings& first = settings.tasks.front();
  Json tasks = Json::array();
  for (const TaskSettings& task : settings.tasks) {
    tasks.push_back(TaskJson(task));
  }
  const ExtensionSettings& extension = settings.extension;
  return {{"model",
           {{"kind", KindName(settings.kind)},
            {"layers", settings.layers},
            {"model_dim", settings.model_dim},
            {"heads", settings.heads},
            {"head_dim", settings.model_dim / settings.heads},
            {"mlp_dim", 4 * settings.model_dim}}},
          {"train_length", first.train_length},
          {"lengths", first.lengths},
          {"batch", first.batch},
          {"steps", first.steps},
          {"learning_rate", first.learning_rate},
          {"seeds", first.seeds},
          {"tasks", tasks},
          {"encodings", settings.Encodings()},
          {"encoding_files", FilesJson(settings)},
          {"tuning",
           {{"factors", settings.tuning.factors},
            {"steps", settings.tuning.steps}}},
          {"extension",
           {{"methods", extension.methods},
            {"seeds", extension.seeds},
            {"factor", extension.factor},
            {"fine_tune_steps", extension.fine_tune_steps}}},
          {"cost",
           {{"lengths", settings.cost.lengths},
            {"encodings", settings.cost.encodings},
            {"tokens", settings.cost.tokens},
            {"rounds", settings.cost.rounds}}},
          {"corpus", corpus},
          {"threads", settings.threads},
          {"ranks", settings.ranks}};
}

}  // namespace locus::lab

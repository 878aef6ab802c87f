#include "lab/study/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "lab/train/scripted.h"
#include "locus/error.h"
#include "locus/text.h"

namespace locus::lab {
namespace {

constexpr OptionRow kRows[] = {
    {"--preset", "NAME",
     "quick (or --quick), default, full (or --full), or a paper's study: "
     "alibi, "
     "kazemnejad, extension, textbook"},
    {"--encodings", "NAMES",
     "comma-separated: names of locus list, with options as in rope{base=100}, "
     "or all; files .pt of encodings that Python wrote"},
    {"--tasks,--task", "NAMES",
     "text, copy, ... (see the list below), comma-separated, or all"},
    {"--seeds", "N|LIST", "3 is the seeds 1, 2 and 3; 4,7 are those two"},
    {"--steps", "N", "training steps of every run"},
    {"--train-length", "N", "tokens of a training sequence"},
    {"--lengths", "LIST", "lengths to evaluate at"},
    {"--batch", "N", "sequences per step"},
    {"--learning-rate", "X", "the highest one, reached after warm-up"},
    {"--tune", "FACTORS",
     "chooses a learning rate for each encoding: on tries 0.5, 1 and 2 times "
     "the task's, or a list; each for a quarter of the steps"},
    {"--score-tokens", "N", "tokens that an evaluation reads at each length"},
    {"--kind", "KIND", "decoder (causal) or encoder (sees both sides)"},
    {"--layers", "N", "transformer layers"},
    {"--model-dim", "N", "width of the model"},
    {"--heads", "N", "attention heads of a layer"},
    {"--corpus", "FILE", "text to learn from, instead of the default one"},
    {"--extend", "METHODS",
     "ways to extend RoPE models of the task text: none (as it is), linear, "
     "ntk, dynamic, yarn; all or off"},
    {"--factor", "X", "how much longer extension makes the context"},
    {"--fine-tune-steps", "N", "of extended models; 0 for none"},
    {"--cost-lengths", "LIST", "lengths at which a step is timed, or off"},
    {"--threads", "N",
     "threads per run; the last bits of results depend on it"},
    {"--jobs", "N", "runs at a time (default: one per core; 1 under mpirun)",
     false},
    {"--export", "FORMATS",
     "csv, svg, pdf, png: tables and charts in FOLDER/export", false},
    {"--out", "FOLDER", "where everything goes (default: results)", false},
};

// Finds an option by any of its names.
std::optional<OptionRow> FindOption(const std::string& name) {
  for (const OptionRow& row : kRows) {
    for (const std::string& flag : Words(row.flags)) {
      if (flag == "--" + name) return row;
    }
  }
  return {};
}

std::string OptionNames() {
  std::string names;
  for (const OptionRow& row : kRows) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", OptionName(row));
  }
  return names;
}

// The option of a key in the file `path`; throws Error if there is none.
OptionRow OptionOf(const std::string& key, const std::string& path) {
  std::string name = key;
  std::ranges::replace(name, '_', '-');
  const auto row = FindOption(name);
  if (!row) {
    throw Error(
        fmt::format("{} has the unknown setting '{}'; known settings: {}", path,
                    Printable(key), OptionNames()));
  }
  return *row;
}

// The command-line text that is equivalent to a value of the file.
std::string TextOf(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  if (value.is_array()) {
    std::string text;
    for (const Json& element : value) {
      if (element.is_array()) break;
      text += TextOf(element, where) + ",";
    }
    return text;
  }
  throw Error(
      fmt::format("{} must be a number, a string or a list of them, got {}",
                  where, value.dump()));
}

template <typename T>
T ReadNumber(const GivenValue& given, T least, T most, std::string_view kind) {
  T value{};
  const char* end = given.text.data() + given.text.size();
  const auto [stop, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= least) ||
      !(value <= most)) {
    throw Error(fmt::format("{} must be a {} from {} to {}, got '{}'",
                            given.where, kind, least, most, given.text));
  }
  return value;
}

// Paths of the leaves of JSON, and their values: "model.heads" -> "4". In a
// list of objects with names, the path has the name: "tasks.text.steps".
using Leaves = std::vector<std::pair<std::string, std::string>>;
void Flatten(const Json& json, const std::string& path, Leaves& leaves) {
  const bool named = json.is_array() && !json.empty() &&
                     json.front().is_object() && json.front().contains("name");
  if (!json.is_object() && !named) {
    leaves.emplace_back(path, json.dump());
    return;
  }
  for (const auto& [key, value] : json.items()) {
    const std::string name = named ? value["name"].get<std::string>() : key;
    Flatten(value, path.empty() ? name : fmt::format("{}.{}", path, name),
            leaves);
  }
}

}  // namespace

std::span<const OptionRow> OptionRows() { return kRows; }

std::string OptionName(const OptionRow& row) {
  const std::string_view first = row.flags.substr(0, row.flags.find(','));
  return std::string(first.substr(2));
}

Given StudyOptions(const Given& given) {
  Given kept;
  for (const auto& [name, value] : given) {
    const auto row = FindOption(name);
    if (row && row->of_study) kept[name] = value;
  }
  return kept;
}

int64_t WholeNumber(const GivenValue& given, int64_t least, int64_t most) {
  return ReadNumber<int64_t>(given, least, most, "whole number");
}

double Number(const GivenValue& given, double least, double most) {
  return ReadNumber<double>(given, least, most, "number");
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    size_t comma = 0;  // the first one outside braces
    for (bool inside = false;
         comma < text.size() && (inside || text[comma] != ','); ++comma) {
      if (text[comma] == '{') inside = true;
      if (text[comma] == '}') inside = false;
    }
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

std::string AbsoluteEncodings(const std::string& text) {
  std::string absolute;
  for (const std::string& word : Words(text)) {
    const bool file = ScriptedEncoding::IsFile(word);
    absolute +=
        fmt::format("{}{}", absolute.empty() ? "" : ",",
                    file ? std::filesystem::absolute(word).string() : word);
  }
  return absolute;
}

Given ReadConfig(const std::string& path) {
  // Some forty settings, and comments.
  constexpr size_t kMostBytes = size_t{1} << 20;
  std::set<std::string> known;
  // Checked while parsing: a later value would silently replace the first.
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start && depth > 0) {
      throw Error(
          fmt::format("{} has an object within; its settings are "
                      "numbers, strings and lists of them",
                      path));
    }
    if (event != Json::parse_event_t::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!known.insert(OptionName(OptionOf(key, path))).second) {
      throw Error(fmt::format("{} has the setting '{}' twice", path, key));
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(ReadFile(path, kMostBytes), check,
                       /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& e) {
    throw Error(
        fmt::format("{} is not JSON: a fault at byte {}", path, e.byte));
  }
  if (!json.is_object()) {
    throw Error(fmt::format(
        "{} must hold one JSON object, as {{\"steps\": 300}}", path));
  }
  Given given;
  for (const auto& [key, value] : json.items()) {
    const std::string where = fmt::format("'{}' in {}", key, path);
    given[OptionName(OptionOf(key, path))] = {.text = TextOf(value, where),
                                              .where = where};
  }
  return given;
}

std::string FirstDifference(const Json& stored, const Json& now) {
  Leaves before;
  Leaves after;
  Flatten(stored, "", before);
  Flatten(now, "", after);
  const auto value_in = [](const auto& leaves, const std::string& path) {
    const auto at =
        std::ranges::find(leaves, path, [](auto& l) { return l.first; });
    return at == leaves.end() ? std::string("absent") : at->second;
  };
  for (const auto& [path, value] : before) {
    const std::string other = value_in(after, path);
    if (value != other) {
      return fmt::format("{} is {} there and would be {} now", path, value,
                         other);
    }
  }
  for (const auto& [path, value] : after) {
    if (value_in(before, path) == "absent") {
      return fmt::format("{} is absent there and would be {} now", path, value);
    }
  }
  return "";
}

std::string_view KindName(ModelKind kind) {
  return kind == ModelKind::kDecoder ? "decoder" : "encoder";
}

std::string_view PathName(AttentionPath path) {
  return path == AttentionPath::kFused ? "fused" : "materialised";
}

}  // namespace locus::lab

#include "lab/report/results_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "locus/error.h"

namespace locus::lab {
namespace {

// Integers up to here are exact as JavaScript numbers, and the sum of four of
// them does not overflow an int64.
constexpr int64_t kMostWhole = int64_t{1} << 53;
// results.json has 5 levels; JSON writers recurse.
constexpr int kMostLevels = 32;

// A value, and its path.
class Part {
 public:
  explicit Part(const Json& value) : value_(value) {}
  Part(const Json& value, const Part& parent, std::string_view key)
      : value_(value), parent_(&parent), key_(key) {}
  Part(const Json& value, const Part& parent, size_t index)
      : value_(value), parent_(&parent), index_(index) {}

  const Json& value() const { return value_; }

  // "runs[0].evaluations[1].loss"
  std::string Path() const {
    if (parent_ == nullptr) return "";
    const std::string before = parent_->Path();
    if (key_.empty()) return fmt::format("{}[{}]", before, index_);
    return fmt::format("{}{}{}", before, before.empty() ? "" : ".", key_);
  }

  void Require(bool holds, std::string_view what) const {
    if (holds) return;
    throw Error(fmt::format("{} must be {}, got {}",
                            parent_ == nullptr ? "the whole" : Path(), what,
                            Shown()));
  }

 private:
  std::string Shown() const {
    if (value_.is_object()) return "an object";
    if (value_.is_array()) {
      return value_.empty() ? "an empty array" : "an array";
    }
    // Only ASCII, so that nothing in it can control a terminal.
    constexpr size_t kMost = 40;
    std::string text = value_.dump(-1, ' ', /*ensure_ascii=*/true);
    std::erase(text, '\x7f');
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }

  const Json& value_;
  const Part* parent_ = nullptr;
  std::string_view key_ = {};
  size_t index_ = 0;
};

using Check = std::function<void(const Part&)>;

void Text(const Part& part) {
  part.Require(part.value().is_string(), "a string");
}

// A string that is also shown in the terminal.
void Name(const Part& part) {
  Text(part);
  const auto& text = part.value().get_ref<const std::string&>();
  bool plain = !text.empty();
  for (size_t n = 0; n < text.size(); ++n) {
    const auto c = static_cast<unsigned char>(text[n]);
    // In UTF-8, U+0080 to U+009F are C2 80 to C2 9F.
    const bool upper = c == 0xC2 && n + 1 < text.size() &&
                       static_cast<unsigned char>(text[n + 1]) < 0xA0;
    plain = plain && c >= 0x20 && c != 0x7F && !upper;
  }
  part.Require(plain, "a name without control characters");
}

void Bool(const Part& part) {
  part.Require(part.value().is_boolean(), "true or false");
}

void Number(const Part& part) {
  part.Require(part.value().is_number(), "a number");
}

// A diverged run has no number.
void NumberOrNull(const Part& part) {
  part.Require(part.value().is_number() || part.value().is_null(),
               "a number or null");
}

void WholeFrom(const Part& part, int64_t least) {
  const Json& value = part.value();
  // get<int64_t>() of a larger unsigned number would wrap.
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= uint64_t{kMostWhole}
          : value.is_number_integer() && value.get<int64_t>() <= kMostWhole;
  part.Require(fits && value.get<int64_t>() >= least,
               fmt::format("a whole number from {} to 2^53", least));
}

void Whole(const Part& part) { WholeFrom(part, 0); }
void Length(const Part& part) { WholeFrom(part, 1); }

void Each(const Part& part, const Check& check) {
  part.Require(part.value().is_array(), "an array");
  for (size_t n = 0; n < part.value().size(); ++n) {
    check(Part(part.value()[n], part, n));
  }
}

void EachOfSome(const Part& part, const Check& check) {
  part.Require(part.value().is_array() && !part.value().empty(),
               "an array that is not empty");
  Each(part, check);
}

Check ArrayOf(Check check) {
  return [check = std::move(check)](const Part& part) { Each(part, check); };
}

void Object(const Part& part) {
  part.Require(part.value().is_object(), "an object");
}

// Checks a key that may be absent.
void May(const Part& part, std::string_view key, const Check& check) {
  const auto at = part.value().find(key);
  if (at != part.value().end()) check(Part(*at, part, key));
}

void Must(const Part& part, std::string_view key, const Check& check) {
  Object(part);
  if (!part.value().contains(key)) {
    const std::string path = part.Path();
    throw Error(
        fmt::format("{}{}{} is missing", path, path.empty() ? "" : ".", key));
  }
  May(part, key, check);
}

void Must(const Part& part, std::initializer_list<std::string_view> keys,
          const Check& check) {
  for (const std::string_view key : keys) Must(part, key, check);
}

void May(const Part& part, std::initializer_list<std::string_view> keys,
         const Check& check) {
  for (const std::string_view key : keys) May(part, key, check);
}

void CheckTask(const Part& task) {
  Must(task, "name", Name);
  Must(task, "encodings", ArrayOf(Name));
  Must(task, "seeds", ArrayOf(Whole));
  Must(task, {"train_length", "steps", "batch"}, Length);
  Must(task, "lengths",
       [](const Part& lengths) { EachOfSome(lengths, Length); });
}

void CheckSettings(const Part& settings) {
  Must(settings, "tasks",
       [](const Part& tasks) { EachOfSome(tasks, CheckTask); });
  Must(settings, "encodings", ArrayOf(Name));
  May(settings, "train_length", Length);
  Must(settings, "extension", [](const Part& extension) {
    Must(extension, "methods", ArrayOf(Name));
    Must(extension, "fine_tune_steps", Whole);
  });
}

void CheckFailure(const Part& failure) {
  Must(failure, {"id", "reason"}, Text);
}

void CheckEncoding(const Part& info) {
  Must(info, "name", Name);
  May(info, "short", Name);
  Must(info, {"title", "paper", "reference", "extrapolates", "note"}, Text);
  May(info, "formula", Text);
  Must(info, "enters_at", ArrayOf(Text));
  Must(info, "trainable", Bool);
}

void CheckEvaluation(const Part& evaluation) {
  Must(evaluation, "length", Length);
  May(evaluation, {"loss", "accuracy"}, NumberOrNull);
  May(evaluation, "refused", Text);
}

void CheckRun(const Part& run) {
  Must(run, {"task", "encoding"}, Name);
  Must(run, "seed", Whole);
  Must(run, "evaluations", ArrayOf(CheckEvaluation));
  May(run, "loss_curve", ArrayOf([](const Part& point) {
        Must(point, "step", Whole);
        Must(point, "loss", NumberOrNull);
      }));
  May(run,
      {"parameters", "train_seconds", "seconds_per_step", "tokens_per_second",
       "peak_memory_bytes"},
      NumberOrNull);
}

void CheckTuning(const Part& tuning) {
  Must(tuning, {"task", "encoding"}, Name);
  Must(tuning, "learning_rate", Number);
  Must(tuning, "loss", NumberOrNull);
}

void CheckExtension(const Part& extension) {
  Must(extension, {"seed", "fine_tune_steps"}, Whole);
  Must(extension, "method", Name);
  Must(extension, "evaluations", ArrayOf(CheckEvaluation));
}

void CheckCost(const Part& cost) {
  Must(cost, "length", Length);
  Must(cost, {"encoding", "path"}, Name);
  May(cost, {"seconds_per_step", "peak_memory_bytes"}, NumberOrNull);
  May(cost, "spread", [](const Part& spread) {
    Each(spread, Number);
    spread.Require(spread.value().size() == 2, "an array of two numbers");
  });
}

void CheckPicture(const Part& picture) {
  Must(picture, {"encoding", "kind"}, Name);
  Must(picture, {"title", "x", "y"}, Text);
  May(picture, "seed", Whole);
  Must(picture, {"x_values", "y_values"},
       [](const Part& values) { EachOfSome(values, Number); });
  const size_t columns = picture.value()["x_values"].size();
  const size_t rows = picture.value()["y_values"].size();
  Must(picture, "values", [&](const Part& values) {
    Each(values, [&](const Part& row) {
      Each(row, NumberOrNull);
      row.Require(row.value().size() == columns,
                  fmt::format("an array of {} values, one for each of x_values",
                              columns));
    });
    values.Require(
        values.value().size() == rows,
        fmt::format("an array of {} rows, one for each of y_values", rows));
  });
}

void CheckSummary(const Part& row) {
  Must(row, {"task", "encoding", "metric"}, Name);
  Must(row, "length", Length);
  Must(row, {"mean", "low", "high"}, Number);
  Must(row, "seeds", Whole);
  Must(row, {"learned", "best"}, Bool);
}

void CheckRanking(const Part& ranking) {
  Must(ranking, {"task", "metric"}, Name);
  Must(ranking, "length", Length);
  Must(ranking, "places", ArrayOf([](const Part& place) {
         Must(place, "encoding", Name);
         Must(place, "mean", Number);
         May(place, "to_next", [](const Part& next) {
           Must(next, "difference", Number);
           Must(next, {"low", "high"}, NumberOrNull);
           Must(next, "significant", Bool);
         });
       }));
}

void CheckClaim(const Part& claim) {
  Must(claim, {"paper", "claim", "here", "agrees"}, Text);
}

void CheckProgress(const Part& progress) {
  Must(progress, {"done", "jobs", "written"}, Whole);
  Must(progress, "first_answer", Bool);
  Must(progress, "running", ArrayOf(Text));
  Must(progress, "seconds_left", NumberOrNull);
}

// Extensions belong to models of the task "text", and are shown at its lengths.
void CheckExtendedTask(const Json& results) {
  if (results["extensions"].empty()) return;
  const Json& tasks = results["settings"]["tasks"];
  if (std::ranges::any_of(
          tasks, [](const Json& task) { return task["name"] == "text"; })) {
    return;
  }
  throw Error(
      "extensions must be empty where settings.tasks has no task named text");
}

// Line and column of a byte of a text, counted from 1.
std::string PlaceOf(std::string_view text, size_t byte) {
  const std::string_view before =
      text.substr(0, std::min(text.size(), byte == 0 ? 0 : byte - 1));
  const auto lines = std::ranges::count(before, '\n');
  const size_t start = before.rfind('\n');
  return fmt::format("line {}, column {}", lines + 1,
                     start == std::string_view::npos ? before.size() + 1
                                                     : before.size() - start);
}

}  // namespace

void CheckResults(const Json& results) {
  const Part all(results);
  Must(all, "schema", [](const Part& schema) {
    schema.Require(schema.value() == 2, "2, the schema of this version");
  });
  Must(all, {"locus", "libtorch", "created", "command"}, Text);
  Must(all, "seconds", [](const Part& seconds) {
    Number(seconds);
    const auto value = seconds.value().get<double>();
    seconds.Require(value >= 0 && value < 1e15, "a number from 0 to 10^15");
  });
  Must(all, "interrupted", Bool);
  Must(all, "machine", Object);
  Must(all, "settings", CheckSettings);
  Must(all, "failed", ArrayOf(CheckFailure));
  Must(all, "encodings", ArrayOf(CheckEncoding));
  Must(all, "runs", ArrayOf(CheckRun));
  Must(all, "tuning", ArrayOf(CheckTuning));
  Must(all, "extensions", ArrayOf(CheckExtension));
  Must(all, "attention_cost", ArrayOf(CheckCost));
  Must(all, "pictures", ArrayOf(CheckPicture));
  Must(all, "summary", ArrayOf(CheckSummary));
  Must(all, "ranking", ArrayOf(CheckRanking));
  Must(all, "claims", ArrayOf(CheckClaim));
  May(all, "progress", CheckProgress);
  CheckExtendedTask(results);
}

Json ParseResults(std::string_view text) {
  Json results;
  try {
    results = Json::parse(
        text, [](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
          if (depth <= kMostLevels) return true;
          throw Error(fmt::format(
              "it has more than {} levels of arrays and objects", kMostLevels));
        });
  } catch (const Json::parse_error& e) {
    throw Error(
        fmt::format("it is not JSON from {} on", PlaceOf(text, e.byte)));
  } catch (const Json::out_of_range&) {
    throw Error("it holds a number that is too large");
  }
  CheckResults(results);
  return results;
}

Json ReadResults(const std::filesystem::path& path) {
  const std::string text = ReadFile(path);
  try {
    return ParseResults(text);
  } catch (const Error& e) {
    throw Error(fmt::format("{} cannot be shown: {}", path.string(), e.what()));
  }
}

}  // namespace locus::lab

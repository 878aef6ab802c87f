// Claims of papers, compared with the results of the study. Each claim is
// tested in every study that has the models for it; the presets of
// lab/study/preset.cc do.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/names.h"
#include "lab/report/evidence.h"
#include "locus/descriptor.h"

namespace locus::lab {
namespace {

using Place = Evidence::Place;

constexpr const char* kPress = "Press et al. 2022 (ALiBi)";
constexpr const char* kChen = "Chen et al. 2023 (position interpolation)";
constexpr const char* kNtk = "bloc97 2023 (NTK-aware scaling)";
constexpr const char* kPeng = "Peng et al. 2023 (YaRN)";
constexpr const char* kKazemnejad = "Kazemnejad et al. 2023";
constexpr const char* kTextbook = "The textbook's table";

// Changes of the loss that a reader would regard as none, and as a failure.
constexpr double kKept = 0.02;
constexpr double kLost = 0.10;

class Claims {
 public:
  Claims(const Settings& settings, const Evidence& evidence)
      : settings_(settings), evidence_(evidence) {}

  Json Test() {
    for (const TaskSettings& task : settings_.tasks) {
      if (RankedBy(task) == "loss") TestText(task);
    }
    TestSyntheticTasks();
    return std::move(rows_);
  }

 private:
  void Add(const char* paper, std::string claim, std::string here,
           const char* agrees) {
    rows_.push_back({{"paper", paper},
                     {"claim", std::move(claim)},
                     {"here", std::move(here)},
                     {"agrees", agrees}});
  }

  // Whether a difference is below zero, as a paper claims.
  static const char* Verdict(const Interval& difference) {
    if (!difference.ExcludesZero()) return "inconclusive";
    return difference.mean < 0 ? "yes" : "no";
  }

  // "-0.120 (-0.150 to -0.090)"
  static std::string Shown(const Interval& d) {
    return fmt::format("{:+.3f} ({:+.3f} to {:+.3f})", d.mean, d.low, d.high);
  }

  void TestBelow(const char* paper, const std::string& claim, const Place& a,
                 const Place& b) {
    const auto difference = evidence_.Difference(a, b, "loss");
    if (!difference) return;
    Add(paper, claim, fmt::format("loss differs by {}", Shown(*difference)),
        Verdict(*difference));
  }

  static std::string Times(const TaskSettings& task, int64_t length) {
    return fmt::format("{:g}x", static_cast<double>(length) /
                                    static_cast<double>(task.train_length));
  }

  void TestText(const TaskSettings& task) {
    for (const int64_t length : task.lengths) {
      if (length < 4 * task.train_length) continue;
      constexpr std::pair<const char*, const char*> kOrder[] = {
          {"alibi", "t5"}, {"t5", "rope"}, {"rope", "sinusoidal"}};
      for (const auto& [better, worse] : kOrder) {
        TestBelow(kPress,
                  fmt::format("at {} the training length {} has a lower loss "
                              "than {}",
                              Times(task, length), better, worse),
                  {SubjectOf(task.name, better), length},
                  {SubjectOf(task.name, worse), length});
      }
    }
    const int64_t fourfold = 4 * task.train_length;
    if (std::ranges::find(task.lengths, fourfold) == task.lengths.end()) return;
    TestExtension(task, fourfold);
    for (const std::string& encoding : task.encodings) {
      TestTextbook(task, encoding, fourfold);
    }
  }

  void TestExtension(const TaskSettings& task, int64_t length) {
    const int64_t steps = settings_.extension.fine_tune_steps;
    const auto at = [&](const char* method, int64_t tuned) {
      return Place{ExtensionSubject(method, tuned), length};
    };
    const Place plain = {ExtensionSubject("none", 0), task.train_length};
    if (const auto d = evidence_.Difference(at("none", 0), plain, "loss")) {
      Add(kChen, "RoPE as it is fails past its training length",
          fmt::format("at 4x its loss differs from its own at 1x by {}",
                      Shown(*d)),
          d->ExcludesZero() ? (d->mean > 0 ? "yes" : "no") : "inconclusive");
    }
    TestBelow(kNtk,
              "without fine-tuning, NTK-aware scaling is below interpolation",
              at("ntk", 0), at("linear", 0));
    if (steps == 0) return;
    TestBelow(kChen,
              "fine-tuned, interpolation is below RoPE fine-tuned as it is",
              at("linear", steps), at("none", steps));
    TestBelow(kPeng, "fine-tuned, YaRN is below interpolation",
              at("yarn", steps), at("linear", steps));
    TestBelow(kPeng, "fine-tuned, YaRN is below NTK-aware scaling",
              at("yarn", steps), at("ntk", steps));
    if (const auto d = evidence_.Difference(at("yarn", steps), plain, "loss")) {
      Add(kPeng, "YaRN with fine-tuning brings RoPE back to its loss at 1x",
          fmt::format("at 4x it differs from RoPE's at 1x by {}", Shown(*d)),
          d->low > 0 ? "no" : "yes");
    }
  }

  // A relative measure: equal changes matter equally for every encoding.
  void TestTextbook(const TaskSettings& task, const std::string& encoding,
                    int64_t length) {
    if (settings_.files.contains(encoding)) return;
    const std::string_view said =
        cli::ExtrapolatesName(FindVariant(encoding).info->extrapolates);
    const std::string claim =
        fmt::format("{} generalises to longer sequences: {}", encoding, said);
    const std::string subject = SubjectOf(task.name, encoding);
    if (evidence_.Refuses({subject, length})) {
      Add(kTextbook, claim, "no: it refuses 4x", said == "no" ? "yes" : "no");
      return;
    }
    const auto own = evidence_.Mean(subject, task.train_length, "loss");
    const auto there = evidence_.Mean(subject, length, "loss");
    if (!own || !there) return;
    const double change = there->mean / own->mean - 1;
    const char* found = change <= kKept  ? "yes"
                        : change > kLost ? "no"
                                         : "partly";
    Add(kTextbook, claim,
        fmt::format("{}: loss {:+.1f} % at 4x", found, 100 * change),
        said == found ? "yes" : "no");
  }

  // The mean difference over the tasks that both encodings have learned.
  void TestSyntheticTasks() {
    constexpr std::pair<const char*, const char*> kOrder[] = {
        {"none", "t5"},  {"none", "alibi"}, {"none", "rope"},
        {"t5", "alibi"}, {"t5", "rope"},    {"rope", "sinusoidal"}};
    for (const auto& [better, worse] : kOrder) {
      double sum = 0;
      double squares = 0;  // of half the widths of independent intervals
      double count = 0;
      for (const TaskSettings& task : settings_.tasks) {
        if (RankedBy(task) == "loss" || !Learned(evidence_, task, better) ||
            !Learned(evidence_, task, worse)) {
          continue;
        }
        const int64_t length = 2 * task.train_length;
        const auto d = evidence_.Difference(
            {SubjectOf(task.name, worse), length},
            {SubjectOf(task.name, better), length}, "accuracy");
        if (!d || !std::isfinite(d->low)) continue;
        sum += d->mean;
        squares += std::pow((d->high - d->low) / 2, 2);
        count += 1;
      }
      if (count == 0) continue;
      const double mean = sum / count;
      const double half = std::sqrt(squares) / count;
      const Interval difference = {
          .mean = mean, .low = mean - half, .high = mean + half};
      Add(kKazemnejad,
          fmt::format("on synthetic tasks at 2x {} is right more often than {}",
                      better, worse),
          fmt::format(
              "by {:+.1f} points ({:+.1f} to {:+.1f}) on {} task{} that "
              "both learned",
              -100 * mean, -100 * difference.high, -100 * difference.low, count,
              count == 1 ? "" : "s"),
          Verdict(difference));
    }
  }

  const Settings& settings_;
  const Evidence& evidence_;
  Json rows_ = Json::array();
};

}  // namespace

Json ClaimsJson(const Settings& settings, const Evidence& evidence) {
  return Claims(settings, evidence).Test();
}

}  // namespace locus::lab

// Combines the measured properties into a check.
#include "locus/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "analysis/measures.h"
#include "locus/error.h"

namespace locus {
namespace analysis {

std::string Shown(double value) { return fmt::format("{:.3g}", value); }

std::string RatioTo(const char* whole, double ratio) {
  return fmt::format("{} {} {}", Shown(ratio), ratio < 1.0 ? "of" : "times",
                     whole);
}

Property Purpose(const Probe& probe) {
  // Where each term acts, as the answer words it.
  static const std::map<std::string, const char*> kPlaces = {
      {"input_add", "the input"},  {"rotate", "q and k"},
      {"extra_dot", "the logits"}, {"q_table", "the logits"},
      {"k_table", "the logits"},   {"bias", "the logits"},
      {"v_table", "the values"},   {"rotate_values", "the values"},
  };
  std::vector<std::string> places;
  for (const std::string& term : probe.TermsPresent()) {
    const std::string place = kPlaces.at(term);
    if (places.empty() || places.back() != place) places.push_back(place);
  }
  const auto& terms = probe.TermsPresent();
  const auto value = static_cast<double>(places.size());
  std::string sentence = fmt::format("It touches {} of 4 places", Shown(value));
  if (!terms.empty()) {
    sentence += fmt::format(": {} ({})", fmt::join(places, " and "),
                            fmt::join(terms, ", "));
  }
  return {.name = "purpose",
          .question = "which of input, q and k, logits, values does it touch?",
          .verdict = terms.empty() ? Verdict::kNo : Verdict::kYes,
          .value = value,
          .measure = "number of places touched",
          .threshold = kNothing,
          .sentence = sentence + "."};
}

}  // namespace analysis

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kYes:
      return "yes";
    case Verdict::kNo:
      return "no";
    case Verdict::kDoesNotApply:
      break;
  }
  return "does not apply";
}

const Property& CheckReport::Find(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Property& p : properties) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  throw Error(fmt::format("there is no property '{}'; known properties: {}",
                          name, fmt::join(names, ", ")));
}

CheckReport Check(const Encoding& encoding, const CheckOptions& options) {
  if (options.length < 8) {
    throw Error(fmt::format("a check needs a length of at least 8, got {}",
                            options.length));
  }
  if (options.heads < 1 || options.head_dim < 1) {
    throw Error(
        fmt::format("a check needs at least one head of one channel, got {} "
                    "heads of {}",
                    options.heads, options.head_dim));
  }
  // Each head gets queries of twice the length, and as many keys.
  constexpr double kMostElements = 0x1p40;
  if (static_cast<double>(options.heads) *
          static_cast<double>(options.head_dim) *
          static_cast<double>(options.length) >
      kMostElements) {
    throw Error(fmt::format(
        "a check of {} heads of {} channels at length {} is too large",
        options.heads, options.head_dim, options.length));
  }
  using namespace analysis;  // NOLINT: the properties, by name
  const Probe probe(encoding, options);
  return {
      .encoding = std::string(encoding.Name()),
      .properties = {Order(probe), Direction(probe), Unique(probe),
                     Bounded(probe), LengthInvariant(probe), Relative(probe),
                     LinearShift(probe), Continuous(probe), Purpose(probe),
                     NormPreserving(probe), Decays(probe), PastLength(probe)}};
}

CheckReport Check(const EncodingInfo& info, const ExampleConfig& config) {
  return Check(*info.example(config), {.heads = config.heads,
                                       .head_dim = config.head_dim,
                                       .length = config.length,
                                       .seed = config.seed});
}

}  // namespace locus

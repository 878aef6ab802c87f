#include "cli/answers/answers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "cli/names.h"
#include "locus/error.h"
#include "locus/version.h"

namespace locus::cli {
namespace {

// Parses an integer in [lowest, highest].
template <typename Int>
Int ReadNumber(const char* flag, const std::string& text, Int lowest,
               Int highest) {
  Int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool whole =
      (error == std::errc() || error == std::errc::result_out_of_range) &&
      stop == end && !text.empty();
  if (!whole) {
    throw Error(fmt::format("{} must be a whole number, got '{}'", flag, text));
  }
  if (error != std::errc() || value < lowest || value > highest) {
    throw Error(fmt::format("{} must lie in {} .. {}, got {}", flag, lowest,
                            highest, text));
  }
  return value;
}

}  // namespace

int64_t ReadNumber(const char* flag, const std::string& text, int64_t lowest,
                   int64_t highest) {
  return ReadNumber<int64_t>(flag, text, lowest, highest);
}

ExampleConfig ReadSizes(const SizeTexts& sizes) {
  // Larger sizes would be a mistake: nothing that is shown or checked needs
  // them, and tables for all of them at once would not fit in memory.
  constexpr int64_t kMostHeads = 1024, kMostDim = 4096, kMostLength = 65536;
  ExampleConfig config;
  config.heads = ReadNumber<int64_t>("--heads", sizes.heads, 1, kMostHeads);
  config.head_dim = ReadNumber<int64_t>("--dim", sizes.dim, 1, kMostDim);
  config.length = ReadNumber<int64_t>("--length", sizes.length, 2, kMostLength);
  config.seed = ReadNumber<uint64_t>("--seed", sizes.seed, 0, UINT32_MAX);
  return config;
}

Shape ShapeOf(const ExampleConfig& config) {
  return Shape::SelfAttention(config.heads, config.head_dim, config.length);
}

Json ConfigJson(const ExampleConfig& config) {
  return {{"heads", config.heads},
          {"dim", config.head_dim},
          {"length", config.length},
          {"seed", config.seed},
          {"options", config.options}};
}

Json FieldsJson(std::span<const Field> fields) {
  Json list = Json::array();
  for (const Field& field : fields) {
    Json json = {{"name", field.name},
                 {"type", FieldTypeName(field.type)},
                 {"default", field.fallback.empty() ? Json(nullptr)
                                                    : Json(field.fallback)},
                 {"choices", ChoicesOf(field)},
                 {"shape", field.shape},
                 {"optional", field.optional},
                 {"by_name", field.by_name},
                 {"sentence", field.sentence},
                 {"slider", nullptr}};
    if (field.slider.defined()) {
      json["slider"] = {{"lowest", field.slider.lowest},
                        {"highest", field.slider.highest},
                        {"step", field.slider.step},
                        {"logarithmic", field.slider.logarithmic}};
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json NumberJson(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::vector<Tensor> ReadParams(const Json& params) {
  std::vector<Tensor> tensors;
  for (const Json& param : params) {
    tensors.push_back(
        Tensor::From(param.at("shape").get<std::vector<int64_t>>(),
                     param.at("values").get<std::vector<double>>()));
  }
  return tensors;
}

namespace {

Json TrainingJson(std::span<const ParamTraining> training) {
  Json rows = Json::array();
  for (const ParamTraining& row : training) {
    rows.push_back({{"name", row.name},
                    {"start", StartName(row.start)},
                    {"size", row.size},
                    {"rate", row.rate},
                    {"decays", row.decays},
                    {"lowest", NumberJson(row.lowest)},
                    {"highest", NumberJson(row.highest)},
                    {"highest_for", row.highest_for},
                    {"shared_by_heads", row.shared_by_heads},
                    {"projection", row.projection}});
  }
  return rows;
}

Json PanelJson(const HeatMap& map) {
  return {{"kind", "heatmap"},
          {"title", map.title},
          {"x_label", map.x_label},
          {"y_label", map.y_label},
          {"value_label", map.value_label},
          {"first_x", map.first_x},
          {"first_y", map.first_y},
          {"values", map.values}};
}

Json PanelJson(const Curves& panel) {
  Json curves = Json::array();
  for (const Curve& c : panel.curves) {
    curves.push_back({{"label", c.label}, {"y", c.y}});
  }
  Json json = {{"kind", "curves"},
               {"title", panel.title},
               {"x_label", panel.x_label},
               {"y_label", panel.y_label},
               {"x", panel.x},
               {"curves", curves},
               {"band", nullptr}};
  if (!panel.band_low.empty()) {
    json["band"] = {{"label", panel.band_label},
                    {"low", panel.band_low},
                    {"high", panel.band_high}};
  }
  return json;
}

}  // namespace

std::vector<std::string> TermsOf(const EncodingInfo& info) {
  const ExampleConfig config;
  return TermNames(info.example(config)->Lower(ShapeOf(config)).terms);
}

Json ListJson() {
  Json encodings = Json::array();
  for (const EncodingInfo& info : Encodings()) {
    encodings.push_back({{"name", info.name},
                         {"class", info.class_name},
                         {"title", info.title},
                         {"formula", info.formula},
                         {"terms", TermsOf(info)},
                         {"reference", ReferenceName(info.reference)},
                         {"trainable", info.trainable},
                         {"extrapolates", ExtrapolatesName(info.extrapolates)},
                         {"extrapolation_note", info.extrapolation_note},
                         {"picture", PictureName(info.picture)},
                         {"options", info.options_text()},
                         {"paper", info.paper},
                         {"models", info.models},
                         {"summary", info.summary},
                         {"fields", FieldsJson(info.fields)},
                         {"example_options", FieldsJson(info.options)},
                         {"variants", info.variants},
                         {"training", TrainingJson(info.training)},
                         {"shared_by_layers", info.shared_by_layers}});
  }
  return {{"version", Version()}, {"encodings", encodings}};
}

Json ShowJson(const Chosen& chosen, const Terms& terms, const Figure& figure) {
  const EncodingInfo& info = *chosen.info;
  Json panels = Json::array();
  for (const Panel& panel : figure.panels) {
    std::visit([&](const auto& p) { panels.push_back(PanelJson(p)); }, panel);
  }
  return {{"encoding", info.name},
          {"title", info.title},
          {"formula", info.formula},
          {"config", ConfigJson(chosen.config)},
          {"terms", TermNames(terms)},
          {"description", Describe(terms)},
          {"picture", PictureName(info.picture)},
          {"panels", std::move(panels)}};
}

Json CheckJson(const ExampleConfig& config, const CheckReport& report) {
  Json properties = Json::array();
  for (const Property& p : report.properties) {
    properties.push_back({{"name", p.name},
                          {"question", p.question},
                          {"verdict", VerdictName(p.verdict)},
                          {"value", NumberJson(p.value)},
                          {"measure", p.measure},
                          {"threshold", NumberJson(p.threshold)},
                          {"sentence", p.sentence}});
  }
  return {{"encoding", report.encoding},
          {"config", ConfigJson(config)},
          {"properties", properties}};
}

}  // namespace locus::cli

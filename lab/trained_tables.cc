// Trains one small model for each encoding with parameters, and prints the
// parameters of its first layer as JSON: the tables shown by the explorer.
//
//   tools/trained_tables.sh    builds this and writes web/data/trained.json
#include <fmt/format.h>
#include <torch/version.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/tasks/corpus.h"
#include "lab/train/run.h"
#include "locus/descriptor.h"
#include "locus/error.h"
#include "locus/version.h"

namespace locus::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLayer = 0;
constexpr int64_t kScoreTokens = 1 << 14;

// A decoder, since an encoder of this size, which scores only its blanks, is
// hardly better than single-letter statistics after 400 steps. Later keys
// remain untrained.
RunSpec SpecOf(std::string_view encoding) {
  RunSpec spec = DefaultSpec("text");
  spec.encoding = encoding;
  spec.kind = ModelKind::kDecoder;
  return spec;
}

// Four digits: more would not be visible, and the file is part of a page.
Json Rounded(const Tensor& tensor) {
  Json values = Json::array();
  for (double x : tensor.ToVector()) {
    values.push_back(Json::parse(fmt::format("{:.4g}", x)));
  }
  return {{"shape", tensor.shape()}, {"values", std::move(values)}};
}

void Train(Run& run) {
  while (run.step() < run.spec().steps) run.Step();
}

double LossOf(const Run& run) {
  return run.Evaluate(run.spec().train_length, kScoreTokens).loss;
}

Json TrainedJson(const EncodingInfo& info, const Corpus& corpus) {
  Run run(SpecOf(info.name), &corpus);
  Train(run);
  const TrainedEncoding trained = run.Trained(kLayer);
  Json params = Json::array();
  for (const Param& param : trained.encoding->Params()) {
    Json json = Rounded(param.value);
    json["name"] = param.name;
    params.push_back(std::move(json));
  }
  return {{"encoding", info.name},
          {"options", trained.example.options},
          {"shared_by_layers", info.shared_by_layers},
          {"loss", LossOf(run)},
          {"params", std::move(params)}};
}

double LossWithoutPosition(const Corpus& corpus) {
  Run run(SpecOf("none"), &corpus);
  Train(run);
  return LossOf(run);
}

void Print() {
  const Corpus corpus = Corpus::Default();
  const RunSpec spec = SpecOf("none");
  Json encodings = Json::array();
  for (const EncodingInfo& info : Encodings()) {
    // Image positions do not apply to a line of text.
    const bool of_images = info.name == "swin" || info.name == "rope-mixed";
    if (!info.trainable || of_images) continue;
    std::fprintf(stderr, "locus: training %s\n",
                 std::string(info.name).c_str());
    encodings.push_back(TrainedJson(info, corpus));
  }
  const Json file = {{"command", "tools/trained_tables.sh"},
                     {"locus", Version()},
                     {"libtorch", TORCH_VERSION},
                     {"corpus",
                      {{"name", corpus.name()},
                       {"sha256", corpus.sha256()},
                       {"licence", corpus.licence()}}},
                     {"model",
                      {{"kind", "decoder"},
                       {"layers", spec.layers},
                       {"heads", spec.heads},
                       {"dim", spec.model_dim / spec.heads},
                       {"length", spec.train_length},
                       {"batch", spec.batch},
                       {"steps", spec.steps},
                       {"seed", spec.seed},
                       {"layer", kLayer + 1}}},
                     {"loss_without_position", LossWithoutPosition(corpus)},
                     {"encodings", std::move(encodings)}};
  fmt::print("{}\n", file.dump());
}

}  // namespace
}  // namespace locus::lab

int main() {
  try {
    locus::lab::Print();
  } catch (const locus::Error& error) {
    std::fprintf(stderr, "locus: %s\n", error.what());
    return 1;
  }
  return 0;
}

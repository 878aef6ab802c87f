#include "cli/trained.h"

#include <fmt/format.h>

#include <fstream>

#include "locus/error.h"

namespace locus::cli {
namespace {

// Calls `read`, which takes what it needs from the file's JSON.
template <typename Read>
decltype(auto) Reading(const std::string& path, Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{} is not a file of trained parameters: {}", path,
                            error.what()));
  } catch (const std::ios_base::failure&) {  // a folder, for example
    throw Error(fmt::format("cannot read {}", path));
  }
}

}  // namespace

TrainedFile::TrainedFile(const std::string& path) : path_(path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot open {}", path));
  file_ = Reading(path, [&] { return Json::parse(in); });
}

const Json& TrainedFile::Find(const Chosen& chosen) const {
  return Reading(path_, [&]() -> const Json& {
    for (const Json& one : file_.at("encodings")) {
      if (one.at("encoding") == chosen.info->name) return one;
    }
    throw Error(fmt::format("{} has no trained parameters of '{}'", path_,
                            chosen.info->name));
  });
}

Chosen TrainedFile::Resized(const Chosen& chosen) const {
  if (!chosen.config.options.empty()) {
    throw Error(fmt::format(
        "--trained takes the options that {} was trained with; leave out '{}'",
        chosen.info->name, chosen.config.options.begin()->first));
  }
  const Json& one = Find(chosen);
  return Reading(path_, [&] {
    const Json& model = file_.at("model");
    Chosen resized = chosen;
    resized.config.heads = model.at("heads").get<int64_t>();
    resized.config.head_dim = model.at("dim").get<int64_t>();
    resized.config.length = model.at("length").get<int64_t>();
    for (const auto& [name, value] : one.at("options").items()) {
      resized.config.options[name] = value.get<std::string>();
    }
    return resized;
  });
}

std::unique_ptr<Encoding> TrainedFile::Build(const Chosen& resized) const {
  const Json& one = Find(resized);
  const std::vector<Tensor> params =
      Reading(path_, [&] { return ReadParams(one.at("params")); });
  return resized.info->example(resized.config)->WithParams(params);
}

std::string TrainedFile::Note(const Chosen& resized) const {
  const Json& one = Find(resized);
  return Reading(path_, [&] {
    return fmt::format(
        "trained: {} steps on English text; {:.2f} nats per byte, without "
        "position {:.2f}",
        file_.at("model").at("steps").get<int64_t>(),
        one.at("loss").get<double>(),
        file_.at("loss_without_position").get<double>());
  });
}

}  // namespace locus::cli

#include "lab/train/scripted.h"

#include <fmt/format.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "lab/train/sha256.h"
#include "locus/error.h"
#include "locus/text.h"

namespace locus::lab {
namespace {

using Json = nlohmann::ordered_json;

// The metadata that save_encoding writes besides the function.
constexpr const char* kDescription = "locus.json";
constexpr int kFormat = 1;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file || bytes.str().empty()) {
    throw Error(fmt::format("cannot read the encoding {}", Printable(path)));
  }
  return bytes.str();
}

[[noreturn]] void Refuse(const std::string& path, const std::string& why) {
  throw Error(fmt::format(
      "{} is not an encoding that locus_attn.torch.save_encoding wrote: {}",
      Printable(path), why));
}

OffsetTerm TermNamed(const std::string& name) {
  if (name == "bias") return OffsetTerm::kBias;
  if (name == "keys") return OffsetTerm::kKeys;
  if (name == "values") return OffsetTerm::kValues;
  throw Error(fmt::format(
      "its kind must be one of bias, keys, values, got '{}'", Printable(name)));
}

double BoundOr(const Json& row, const char* key, double none) {
  return row.at(key).is_null() ? none : row.at(key).get<double>();
}

// The module and the attribute named "a.b.c".
std::pair<torch::jit::Module, std::string> Find(torch::jit::Module module,
                                                const std::string& name) {
  std::string_view rest = name;
  for (size_t dot = rest.find('.'); dot != std::string_view::npos;
       dot = rest.find('.')) {
    module = module.attr(std::string(rest.substr(0, dot))).toModule();
    rest.remove_prefix(dot + 1);
  }
  return {module, std::string(rest)};
}

}  // namespace

struct ScriptedEncoding::Function {
  torch::jit::Module module;
};

ScriptedEncoding::ScriptedEncoding() = default;
ScriptedEncoding::~ScriptedEncoding() = default;

std::string ScriptedEncoding::NameOf(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

std::shared_ptr<const ScriptedEncoding> ScriptedEncoding::Open(
    const std::string& path) {
  const std::string bytes = Contents(path);
  std::shared_ptr<ScriptedEncoding> made(new ScriptedEncoding);
  made->name_ = NameOf(path);
  made->sha256_ = Sha256(bytes);
  try {
    std::istringstream stream(bytes);
    torch::jit::ExtraFilesMap extra = {{kDescription, ""}};
    made->function_ = std::make_unique<Function>(
        Function{torch::jit::load(stream, torch::kCPU, extra)});
    const Json json = Json::parse(extra.at(kDescription));
    if (json.at("format") != kFormat) {
      Refuse(path, fmt::format("its format is {}, this version reads {}",
                               json.at("format").dump(), kFormat));
    }
    made->term_ = TermNamed(json.at("kind").get<std::string>());
    json.at("heads").get_to(made->heads_);
    json.at("title").get_to(made->title_);
    json.at("formula").get_to(made->formula_);
    for (const Json& row : json.at("parameters")) {
      Parameter parameter{.name = row.at("name").get<std::string>(),
                          .rate = row.at("rate").get<double>(),
                          .decays = row.at("decays").get<bool>()};
      parameter.lowest = BoundOr(row, "lowest", parameter.lowest);
      parameter.highest = BoundOr(row, "highest", parameter.highest);
      const auto [module, name] = Find(made->function_->module, parameter.name);
      parameter.start =
          module.attr(name).toTensor().detach().to(torch::kFloat).contiguous();
      made->parameters_.push_back(std::move(parameter));
    }
  } catch (const Json::exception&) {
    Refuse(path, "it holds no description");
  } catch (const c10::Error& e) {
    std::string why = e.what_without_backtrace();
    Refuse(path, Printable(why.substr(0, why.find('\n'))));
  }
  return made;
}

void ScriptedEncoding::CheckHeads(int64_t heads) const {
  // Tables of keys and values may be shared by all heads.
  if (heads_ == heads || (heads_ == 1 && term_ != OffsetTerm::kBias)) return;
  throw Error(
      fmt::format("{} is written for {} heads, and the model has {}; save it "
                  "for as many, or give --heads {}",
                  name_, heads_, heads, heads_));
}

torch::Tensor ScriptedEncoding::At(
    int64_t first, int64_t last,
    const std::vector<torch::Tensor>& parameters) const {
  // An executor that optimises after some calls would change the last bits of a
  // resumed run.
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  try {
    for (size_t n = 0; n < parameters_.size(); ++n) {
      auto [module, name] = Find(function_->module, parameters_[n].name);
      module.setattr(name, parameters[n]);
    }
    const torch::Tensor table =
        function_->module.forward({torch::arange(first, last + 1)}).toTensor();
    const int64_t rank = term_ == OffsetTerm::kBias ? 2 : 3;
    if (table.dim() != rank || table.size(0) != heads_ ||
        table.size(1) != last - first + 1) {
      throw Error(fmt::format(
          "the function of {} must return [{} heads, {} offsets{}]", name_,
          heads_, last - first + 1, rank == 2 ? "" : ", head_dim"));
    }
    return table.to(torch::kFloat);
  } catch (const c10::Error& e) {
    const std::string why = e.what_without_backtrace();
    throw Error(fmt::format("the function of {} failed: {}", name_,
                            Printable(why.substr(0, why.find('\n')))));
  }
}

}  // namespace locus::lab

// The one entry of the explorer: a question as JSON, an answer as JSON.
//
//   {"ask": "list"}
//   {"ask": "show" | "check" | "scores" | "distance" | "pairs",
//    "encoding": "rope", "heads": 8, "dim": 64, "length": 128, "seed": 1,
//    "options": {"base": "500000"}, ...}
//   {"ask": "hold", "encoding": "t5", "params": [{"shape": ..., "values":
//   ...}]},
//    after which "trained": true asks for the encoding with those parameters
//   {"ask": "explain", "models": [{"name": "a", "text": "{...}"}]}
//
// Rows of numbers leave as float64 beside the text: in their place stands
// {"$": [first, count]}. Whatever is wrong becomes {"error": sentence}.
#include <array>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "locus/error.h"
#include "locus/models.h"
#include "web/wasm/views.h"

namespace locus::web {
namespace {

// A string as it is, a number as it is written.
std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Chosen ChosenBy(const Json& question) {
  cli::SizeTexts sizes;
  const auto set = [&](const char* key, std::string& text) {
    if (question.contains(key)) text = TextOf(question[key]);
  };
  set("heads", sizes.heads);
  set("dim", sizes.dim);
  set("length", sizes.length);
  set("seed", sizes.seed);
  Variant variant = FindVariant(question.at("encoding").get<std::string>());
  if (question.contains("options")) {
    for (const auto& [name, value] : question["options"].items()) {
      variant.options[name] = TextOf(value);
    }
  }
  Chosen chosen{.name = variant.Name(),
                .info = variant.info,
                .config = cli::ReadSizes(sizes)};
  chosen.config.options = variant.options;
  return chosen;
}

Content ContentOf(const Json& question) {
  const std::string word = question.value("content", "matching");
  if (word == "matching") return Content::kMatching;
  if (word == "random") return Content::kRandom;
  if (word == "none") return Content::kNone;
  throw Error("content must be matching, random or none, got '" + word + "'");
}

// Trained parameters by the name of their encoding, as "hold" brought them.
std::map<std::string, std::vector<Tensor>>& Held() {
  static std::map<std::string, std::vector<Tensor>> held;
  return held;
}

Json Hold(const Json& question) {
  // Once for each encoding, before anything asks for it trained.
  Held()[question.at("encoding").get<std::string>()] =
      cli::ReadParams(question.at("params"));
  return Json::object();
}

std::shared_ptr<const Encoding> Build(const Chosen& chosen, bool trained) {
  auto example = chosen.info->example(chosen.config);
  if (!trained) return example;
  return example->WithParams(Held().at(std::string(chosen.info->name)));
}

// Figures of one encoding ask one after another, and its random tables may take
// longer than a figure: the last encoding is kept.
Subject SubjectOf(const Json& question) {
  static std::pair<std::string, Subject> last;
  Chosen chosen = ChosenBy(question);
  const bool trained = question.value("trained", false);
  std::string key =
      Json{chosen.info->name, cli::ConfigJson(chosen.config), trained}.dump();
  if (key != last.first) {
    auto encoding = Build(chosen, trained);
    last = {std::move(key),
            {.chosen = std::move(chosen),
             .encoding = std::move(encoding),
             .trained = trained}};
  }
  return last.second;
}

Json ExplainAll(const Json& question) {
  models::ReadOptions options;
  options.layer = -1;
  options.lenient = question.value("lenient", false);
  std::vector<cli::Explained> all;
  Json list = Json::array();
  for (const Json& model : question.at("models")) {
    const auto& text = model.at("text").get_ref<const std::string&>();
    all.push_back(cli::Explain(models::ModelConfig::Parse(text),
                               model.at("name").get<std::string>(), options));
    Json facts = Json::array();
    for (const cli::LayerGroup& group : all.back().groups) {
      facts.push_back({{"layers", cli::Ranges(group.layers)},
                       {"mask", cli::MaskWords(group.position)},
                       {"rotation", RotationFacts(group.position)}});
    }
    list.push_back(
        {{"explained", cli::ExplainJson(all.back())}, {"facts", facts}});
  }
  Json answer = {{"models", std::move(list)}};
  if (all.size() == 2) answer["differences"] = Differences(all[0], all[1]);
  return answer;
}

Json Answer(const Json& question) {
  const std::string ask = question.at("ask").get<std::string>();
  if (ask == "list") return cli::ListJson();
  if (ask == "explain") return ExplainAll(question);
  if (ask == "hold") return Hold(question);
  const Subject subject = SubjectOf(question);
  if (ask == "show") return Show(subject);
  if (ask == "check") return Check(subject);
  if (ask == "pairs") {
    return Pairs(subject, question.at("positions").get<std::vector<int64_t>>());
  }
  const int64_t head = question.value("head", int64_t{0});
  if (ask == "distance") return ByDistance(subject, head, ContentOf(question));
  if (ask == "scores") {
    return Scores(subject,
                  {.head = head,
                   .first = question.value("first", int64_t{0}),
                   .count = question.at("count").get<int64_t>(),
                   .content = ContentOf(question),
                   .words = question.value("words", std::vector<int64_t>()),
                   .causal = question.value("causal", false)});
  }
  throw Error("no such question: '" + ask + "'");
}

// Moves rows of floating-point numbers out of `json`.
void TakeNumbers(Json& json, std::vector<double>& numbers) {
  if (json.is_array() && !json.empty()) {
    bool all = true;
    for (const Json& one : json) all = all && one.is_number_float();
    if (all) {
      const size_t first = numbers.size();
      for (const Json& one : json) numbers.push_back(one.get<double>());
      json = {{"$", {first, numbers.size() - first}}};
      return;
    }
  }
  if (!json.is_structured()) return;
  for (Json& one : json) TakeNumbers(one, numbers);
}

struct Reply {
  std::string text = {};
  std::vector<double> numbers = {};
  // What the page reads: addresses and sizes.
  std::array<uint32_t, 4> places = {};
};

std::string Ask(std::string_view text, std::vector<double>& numbers) {
  const auto said = [](std::string_view sentence) {
    return Json{{"error", sentence}}.dump(-1, ' ', /*ensure_ascii=*/true,
                                          Json::error_handler_t::replace);
  };
  try {
    Json answer = Answer(Json::parse(text));
    TakeNumbers(answer, numbers);
    return answer.dump(-1, ' ', /*ensure_ascii=*/true,
                       Json::error_handler_t::replace);
  } catch (const std::bad_alloc&) {
    return said("this needs more memory than the browser gives a page");
  } catch (const std::exception& error) {
    return said(error.what());
  }
}

uint32_t Address(const void* pointer) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace
}  // namespace locus::web

// The reply stays until the next question: text, its size, numbers, their
// count.
extern "C" const uint32_t* locus_ask(const char* text, size_t size) {
  static locus::web::Reply reply;
  reply.numbers.clear();
  reply.text = locus::web::Ask({text, size}, reply.numbers);
  reply.places = {locus::web::Address(reply.text.data()),
                  static_cast<uint32_t>(reply.text.size()),
                  locus::web::Address(reply.numbers.data()),
                  static_cast<uint32_t>(reply.numbers.size())};
  return reply.places.data();
}

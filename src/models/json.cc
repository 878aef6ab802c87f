#include "models/json.h"

#include <set>
#include <string>
#include <vector>

#include "core/fail.h"

namespace locus::models {
namespace {

// Configs nest three levels; weights' headers two.
constexpr int kDeepest = 32;
constexpr size_t kShown = 60;

// nlohmann's own text without its bracketed number and type.
std::string Reason(const nlohmann::json::exception& e) {
  const std::string said = e.what();
  const size_t at = said.find("] ");
  std::string reason = at == std::string::npos ? said : said.substr(at + 2);
  for (char& c : reason) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u > 0x7e) c = '?';
  }
  constexpr size_t kMost = 200;
  if (reason.size() > kMost) reason = reason.substr(0, kMost) + "...";
  return reason;
}

}  // namespace

Json ParseObject(std::string_view text, const char* what, size_t most_bytes) {
  if (text.size() > most_bytes) {
    Fail("{} has {} bytes, more than the {} that can be right", what,
         text.size(), most_bytes);
  }
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) {
      Fail("{} is nested deeper than {} levels", what, kDeepest);
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        Fail("{} has the key {} twice in one object", what, Shown(parsed));
      }
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::json::exception& e) {
    Fail("{} is not valid JSON: {}", what, Reason(e));
  }
  if (!json.is_object()) {
    Fail("{} must be a JSON object, got {}", what, Shown(json));
  }
  return json;
}

std::string Shown(const Json& value) {
  if (value.is_array() || value.is_object()) {
    return fmt::format("{} of {} {}", value.is_array() ? "a list" : "an object",
                       value.size(), value.size() == 1 ? "entry" : "entries");
  }
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown - 3) + "...";
  return text;
}

}  // namespace locus::models

#include "models/json.h"

#include <string>
#include <vector>

#include "core/fail.h"
#include "locus/text.h"

namespace locus::models {
namespace {

// Configs have three levels; headers of weights have two.
constexpr size_t kDeepest = 32;
constexpr size_t kShown = 60;

// nlohmann's message without the bracketed id and type.
std::string Reason(const nlohmann::json::exception& e) {
  const std::string said = e.what();
  const size_t at = said.find("] ");
  constexpr size_t kMost = 200;
  return Printable(
      at == std::string::npos ? said : std::string_view(said).substr(at + 2),
      kMost);
}

// Builds the value from parser events. The library's own builder with a
// callback rescans the whole parent after each object in it.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const char* what) : what_(what) {}
  JsonTree Take() { return std::move(tree_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(int64_t value) override { return Put(value); }
  bool number_unsigned(uint64_t value) override { return Put(value); }
  bool number_float(double value, const std::string& /*text*/) override {
    return Put(value);
  }
  bool string(std::string& value) override { return Put(std::move(value)); }
  bool binary(Json::binary_t& value) override { return Put(std::move(value)); }

  bool start_object(size_t /*size*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    auto& object = open_.back()->get_ref<Json::object_t&>();
    const auto [at, is_new] = object.try_emplace(std::move(name));
    if (!is_new) {
      Fail("{} has the key {} twice in one object", what_,
           Shown(Json(at->first)));
    }
    member_ = &at->second;
    return true;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& e) override {
    Fail("{} is not valid JSON: {}", what_, Reason(e));
  }

 private:
  // Adds a value at the current place.
  Json* Place(Json value) {
    if (open_.empty()) {
      tree_.root = std::move(value);
      return &tree_.root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    *member_ = std::move(value);
    return member_;
  }
  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (open_.size() >= kDeepest) {
      Fail("{} is nested deeper than {} levels", what_, kDeepest);
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const char* what_;
  JsonTree tree_;
  std::vector<Json*> open_;  // the open containers, root first
  Json* member_ = nullptr;   // of the innermost object, after its key
};

// Empties a value, so that its destructor has nothing to do. The recursion is
// no deeper than parsed text.
void TakeApart(Json& json) noexcept {
  if (json.is_array()) {
    auto& list = json.get_ref<Json::array_t&>();
    for (Json& entry : list) TakeApart(entry);
    list.clear();
  } else if (json.is_object()) {
    auto& object = json.get_ref<Json::object_t&>();
    for (auto& [key, entry] : object) TakeApart(entry);
    object.clear();
  }
}

}  // namespace

JsonTree::~JsonTree() { TakeApart(root); }

JsonTree ParseObject(std::string_view text, const char* what,
                     size_t most_bytes) {
  if (text.size() > most_bytes) {
    Fail("{} has {} bytes, more than the {} that can be right", what,
         text.size(), most_bytes);
  }
  Builder builder(what);
  Json::sax_parse(text.begin(), text.end(), &builder);
  JsonTree json = builder.Take();
  if (!json.root.is_object()) {
    Fail("{} must be a JSON object, got {}", what, Shown(json.root));
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

// Makes every key of every config of the golden values, and of the class
// defaults of every model type, invalid in every way: the config is rejected in
// one sentence that names the key, or the key has no effect on the layer at
// all.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "locus/error.h"
#include "models/golden.h"
#include "models/published.h"

namespace locus::models {
namespace {

struct Subject {
  std::string name;
  GoldenJson config;
  ReadOptions options;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const char* file :
       {"rotary.json", "tables.json", "layers.json", "inputs.json",
        "stacks.json", "legacy.json", "formulas.json"}) {
    for (const GoldenJson& c : GoldenCases(file)) {
      if (!c.contains("config")) continue;
      Subject s = {c["name"], c["config"], {.part = c.value("part", "")}};
      s.name += " of " + s.config["model_type"].get<std::string>();
      subjects.push_back(s);
      // The last layer as well, where layers may differ.
      s.options.layer = FromConfig(s.config.dump(), s.options).layers - 1;
      if (s.options.layer > 0) subjects.push_back(s);
    }
  }
  return subjects;
}

// The first and the last layer of every model type with class defaults, with
// those defaults.
std::vector<Subject> SubjectsOfClasses() {
  std::ifstream in(LOCUS_CLASS_DEFAULTS);
  std::vector<Subject> subjects;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find("R\"(");
    if (begin == std::string::npos) continue;
    const std::string type = line.substr(2, line.find('"', 2) - 2);
    const size_t end = line.rfind(")\"");
    Subject s = {
        type, GoldenJson::parse(line.substr(begin + 3, end - begin - 3)), {}};
    s.config.erase("default_theta");
    s.config["model_type"] = type;
    try {
      const int64_t layers = FromConfig(s.config.dump(), s.options).layers;
      subjects.push_back(s);
      if (layers == 1) continue;
      s.options.layer = layers - 1;
      subjects.push_back(s);
    } catch (const Error&) {
      continue;  // a type that needs more than that
    }
  }
  return subjects;
}

// All facts of a layer from a config, or the error.
struct Outcome {
  bool accepted = false;
  std::string text;
};

Outcome Read(const GoldenJson& config, const ReadOptions& options) {
  try {
    const LayerPosition p = FromConfig(config.dump(), options);
    std::string text = PositionFacts(p) + CallFacts(p) + p.attention.words +
                       p.input.words + p.layer_type;
    for (const Scheme* s : {&p.attention, &p.input}) {
      for (const NeededTensor& t : s->tensors) {
        text += fmt::format(" {} {}", t.name, fmt::join(t.shape, "x"));
      }
    }
    if (p.rotary) text += fmt::format(" {}", fmt::join(p.rotary->theta, " "));
    return {true, text};
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    EXPECT_LT(std::string(e.what()).size(), 400u) << e.what();
    return {false, e.what()};
  }
}

using Visit = std::function<void(const GoldenJson::json_pointer&, GoldenJson&)>;

// Calls `visit` for every value under a key, at any depth. The value may be
// changed; it is restored.
void ForEachKey(GoldenJson& config, const Visit& visit) {
  const std::function<void(GoldenJson&, const GoldenJson::json_pointer&)> walk =
      [&](GoldenJson& object, const GoldenJson::json_pointer& at) {
        for (auto& [key, value] : object.items()) {
          const GoldenJson kept = value;
          visit(at / key, value);
          value = kept;
          if (value.is_object()) walk(value, at / key);
        }
      };
  walk(config, GoldenJson::json_pointer());
}

// Values of other types than this one. Integers are valid real numbers.
std::vector<GoldenJson> OtherTypes(const GoldenJson& value) {
  std::vector<GoldenJson> others;
  for (const GoldenJson& other :
       {GoldenJson("x"), GoldenJson::array(), GoldenJson::array({"", -1}),
        GoldenJson::object(), GoldenJson(true), GoldenJson(7)}) {
    if (other.type() == value.type() ||
        (other.is_number() && value.is_number()) ||
        (value.is_null() || (value.is_array() && other.is_array()))) {
      continue;
    }
    others.push_back(other);
  }
  return others;
}

const std::vector<GoldenJson> kBadNumbers = {
    -1, -0.5, 1e300, 9223372036854775807, 18446744073709551615u};

struct Tally {
  int refused = 0;
  int without_bearing = 0;
};

void MakeEveryValueWrong(Subject& s, Tally& tally) {
  // Here -1 means "none" in the models' own code.
  const std::set<std::string> minus_one = {
      "clamp_len", "max_relative_positions", "position_buckets"};
  const Outcome base = Read(s.config, s.options);
  ASSERT_TRUE(base.accepted) << s.name << ": " << base.text;
  ForEachKey(s.config, [&](const auto& at, GoldenJson& value) {
    const std::string key = at.back();
    std::vector<GoldenJson> wrong = OtherTypes(value);
    // A string or a list is valid.
    if (key == "pos_att_type") std::erase(wrong, GoldenJson::array());
    // A number for both sides, or a list.
    if (key == "patch_size" || key == "image_size") {
      std::erase(wrong, GoldenJson(7));
    }
    if (value.is_number()) {
      for (const GoldenJson& bad : kBadNumbers) {
        if (bad != -1 || !minus_one.contains(key)) wrong.push_back(bad);
      }
    }
    for (const GoldenJson& bad : wrong) {
      value = bad;
      const Outcome now = Read(s.config, s.options);
      (now.accepted ? tally.without_bearing : tally.refused) += 1;
      if (now.accepted) {
        EXPECT_EQ(now.text, base.text)
            << s.name << ": " << at.to_string() << " = " << bad.dump();
      } else {
        EXPECT_NE(now.text.find(key), std::string::npos)
            << s.name << ": " << at.to_string() << " = " << bad.dump() << ": "
            << now.text;
      }
    }
  });
}

TEST(MutationTest, WrongValuesAreRefusedOrHaveNoBearing) {
  Tally tally;
  for (Subject& s : Subjects()) MakeEveryValueWrong(s, tally);
  EXPECT_GT(tally.refused, 10000);
  EXPECT_GT(tally.without_bearing, 1000);
}

TEST(MutationTest, WrongValuesOfEveryTypeAreRefusedOrHaveNoBearing) {
  Tally tally;
  std::vector<Subject> subjects = SubjectsOfClasses();
  EXPECT_GT(subjects.size(), 400u);
  for (Subject& s : subjects) MakeEveryValueWrong(s, tally);
  EXPECT_GT(tally.refused, 10000);
  EXPECT_GT(tally.without_bearing, 1000);
}

TEST(MutationTest, AbsentAndNullKeysNeverCrash) {
  int refused = 0, accepted = 0;
  for (Subject& s : Subjects()) {
    ForEachKey(s.config, [&](const auto&, GoldenJson& value) {
      value = nullptr;
      (Read(s.config, s.options).accepted ? accepted : refused) += 1;
    });
    const GoldenJson whole = s.config;
    for (const auto& [key, unused] : whole.items()) {
      s.config.erase(key);
      (Read(s.config, s.options).accepted ? accepted : refused) += 1;
      s.config = whole;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

TEST(MutationTest, UnknownPositionKeysAreNamed) {
  const std::string key = "rope_surprise";
  for (Subject& s : Subjects()) {
    SCOPED_TRACE(s.name);
    s.config[key] = 1;
    EXPECT_NE(Read(s.config, s.options).text.find('"' + key + '"'),
              std::string::npos);
    s.options.lenient = true;
    const LayerPosition p = FromConfig(s.config.dump(), s.options);
    ASSERT_FALSE(p.warnings.empty());
    EXPECT_NE(p.warnings.back().find(key), std::string::npos);
    s.options.lenient = false;
    s.config.erase(key);
    for (const char* object : {"rope_scaling", "rope_parameters"}) {
      if (!s.config.contains(object) || !s.config[object].is_object()) continue;
      s.config[object][key] = 1;
      const Outcome now = Read(s.config, s.options);
      EXPECT_FALSE(now.accepted);
      EXPECT_NE(now.text.find(key), std::string::npos) << now.text;
      s.config[object].erase(key);
    }
  }
}

}  // namespace
}  // namespace locus::models

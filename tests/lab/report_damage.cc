// Damages each value of a real results.json in every way: either the report is
// drawn, or one sentence says where the damage is.
//
// usage: report_damage_test RESULTS.json
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "lab/report/report.h"
#include "lab/report/results_check.h"
#include "lab/study/store.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

std::string file;

using Pointer = Json::json_pointer;

// A pointer to every value; of an array only "[0]" and the last element, which
// may be of another kind (a refusal, a gap).
void Collect(const Json& value, const Pointer& at, std::vector<Pointer>& out) {
  if (!at.empty()) out.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      Collect(inner, at / key, out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (const size_t n : std::set<size_t>{0, value.size() - 1}) {
      Collect(value[n], at / n, out);
    }
  }
}

// "/runs/0/task" as "runs[0].task"
std::string PathOf(const Pointer& at) {
  std::string path;
  const std::string text = at.to_string();
  for (size_t n = 0; n < text.size();) {
    const size_t end = std::min(text.find('/', n + 1), text.size());
    const std::string step = text.substr(n + 1, end - n - 1);
    if (step.find_first_not_of("0123456789") == std::string::npos) {
      path += "[" + step + "]";
    } else {
      path += (path.empty() ? "" : ".") + step;
    }
    n = end;
  }
  return path;
}

// Empty if the report could be drawn, else the error message.
std::string Complaint(const Json& results) {
  try {
    const Json read = ParseResults(results.dump());
    EXPECT_FALSE(ReportHtml(read).empty());
    EXPECT_FALSE(ReportText(read).empty());
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

const Json& Whole() {
  static const Json results = Json::parse(ReadFile(file));
  return results;
}

TEST(ReportDamageTest, RealResultsAreShown) {
  EXPECT_EQ(Complaint(Whole()), "");
}

TEST(ReportDamageTest, EveryDamageIsShownOrNamed) {
  const std::vector<Json> wrong = {Json::object(),
                                   Json::array(),
                                   Json::array({Json::object()}),
                                   nullptr,
                                   true,
                                   "text",
                                   "\x1b[31m",
                                   -1,
                                   0,
                                   0.5,
                                   1e300,
                                   1e-310,
                                   UINT64_MAX,
                                   INT64_MIN};
  std::vector<Pointer> places;
  Collect(Whole(), Pointer(), places);
  ASSERT_GT(places.size(), 150U);
  int refused = 0;
  for (const Pointer& at : places) {
    const auto expect_place = [&](const std::string& complaint) {
      if (complaint.empty()) return;
      ++refused;
      EXPECT_EQ(complaint.find("json.exception"), std::string::npos)
          << complaint;
      EXPECT_EQ(complaint.find('\n'), std::string::npos) << complaint;
      EXPECT_EQ(complaint.find('\x1b'), std::string::npos) << complaint;
      // The damage itself or what it breaks, such as a picture's axis and its
      // rows.
      const std::string first =
          PathOf(at).substr(0, PathOf(at).find_first_of(".["));
      EXPECT_EQ(complaint.find(first), 0U)
          << PathOf(at) << " was damaged: " << complaint;
    };
    for (const Json& value : wrong) {
      Json results = Whole();
      results[at] = value;
      SCOPED_TRACE(PathOf(at) + " = " + value.dump());
      expect_place(Complaint(results));
    }
    Json results = Whole();
    Json& parent = results[at.parent_pointer()];
    if (parent.is_object()) {
      parent.erase(at.back());
      SCOPED_TRACE(PathOf(at) + " erased");
      expect_place(Complaint(results));
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(ReportDamageTest, SentencesNameTheValue) {
  const auto damaged = [](const char* pointer, const Json& value) {
    Json results = Whole();
    results[Pointer(pointer)] = value;
    return Complaint(results);
  };
  EXPECT_EQ(damaged("/runs/0/evaluations/0/loss", Json::object()),
            "runs[0].evaluations[0].loss must be a number or null, got an "
            "object");
  EXPECT_EQ(damaged("/settings/tasks/0/train_length", 0),
            "settings.tasks[0].train_length must be a whole number from 1 to "
            "2^53, got 0");
  EXPECT_EQ(damaged("/settings/tasks", Json::array()),
            "settings.tasks must be an array that is not empty, got an empty "
            "array");
  EXPECT_EQ(damaged("/summary/0/mean", "low"),
            "summary[0].mean must be a number, got \"low\"");
  Json results = Whole();
  results["runs"][0]["evaluations"][0].erase("length");
  EXPECT_EQ(Complaint(results), "runs[0].evaluations[0].length is missing");
}

TEST(ReportDamageTest, TextThatIsNotJsonIsPlaced) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      ParseResults(text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("{\"a\": 1,\n \"b\": NaN}"),
            "it is not JSON from line 2, column 7 on");
  EXPECT_NE(complaint("").find("line 1, column 1"), std::string::npos);
  EXPECT_EQ(complaint("{\"a\": 1e999}"), "it holds a number that is too large");
  EXPECT_EQ(complaint("[]"), "the whole must be an object, got an empty array");
  EXPECT_NE(complaint("{}").find("schema is missing"), std::string::npos);
  EXPECT_NE(complaint(std::string(1000000, '[')).find("levels"),
            std::string::npos);
  const std::string text = ReadFile(file);
  for (size_t size = 0; size < text.size(); size += text.size() / 37) {
    EXPECT_NE(complaint(text.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace locus::lab

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: report_damage_test RESULTS.json\n");
    return 2;
  }
  locus::lab::file = argv[1];
  return RUN_ALL_TESTS();
}

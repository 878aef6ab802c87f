// Options, presets and the resulting plan.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lab/study/config.h"
#include "lab/study/plan.h"
#include "lab/study/store.h"
#include "locus/descriptor.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

Given Options(const std::map<std::string, std::string>& texts) {
  Given given;
  for (const auto& [name, text] : texts) {
    given[name] = {.text = text, .where = "--" + name};
  }
  return given;
}

std::string Complaint(const std::map<std::string, std::string>& texts) {
  try {
    Resolve(Options(texts));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Tests run in parallel, each in a separate process.
std::string ConfigPath() {
  return testing::TempDir() + "compare_config_" + std::to_string(getpid()) +
         ".json";
}

std::string ConfigComplaint(const std::string& text) {
  const std::string path = ConfigPath();
  WriteFile(path, text);
  std::string complaint;
  try {
    ReadConfig(path);
  } catch (const Error& e) {
    complaint = e.what();
  }
  std::filesystem::remove(path);
  return complaint;
}

size_t Count(const std::vector<Job>& plan, JobKind kind) {
  return static_cast<size_t>(std::ranges::count(plan, kind, &Job::kind));
}

TEST(CompareConfigTest, OptionsReachEveryTask) {
  const Settings settings = Resolve(Options({{"tasks", "text,copy"},
                                             {"encodings", "rope, alibi,rope"},
                                             {"seeds", "2"},
                                             {"steps", "7"},
                                             {"train-length", "16"},
                                             {"lengths", "64,16,16"}}));
  ASSERT_EQ(settings.tasks.size(), 2U);
  for (const TaskSettings& task : settings.tasks) {
    EXPECT_EQ(task.encodings, (std::vector<std::string>{"rope", "alibi"}));
    EXPECT_EQ(task.seeds, (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(task.steps, 7);
    EXPECT_EQ(task.train_length, 16);
    EXPECT_EQ(task.lengths, (std::vector<int64_t>{16, 64}));
  }
  EXPECT_EQ(settings.Encodings(),
            (std::vector<std::string>{"none", "alibi", "rope"}))
      << "in the order of the list, with what costs are measured against";
}

TEST(CompareConfigTest, TrainLengthScalesLengths) {
  const Settings usual = Resolve({});
  const int64_t length = usual.tasks[0].train_length;
  const Settings twice =
      Resolve(Options({{"train-length", std::to_string(2 * length)}}));
  for (size_t n = 0; n < usual.tasks[0].lengths.size(); ++n) {
    EXPECT_EQ(twice.tasks[0].lengths[n], 2 * usual.tasks[0].lengths[n]);
  }
}

TEST(CompareConfigTest, SeedsAreACountOrAList) {
  EXPECT_EQ(Resolve(Options({{"seeds", "4,9"}})).tasks[0].seeds,
            (std::vector<uint64_t>{4, 9}));
  EXPECT_EQ(Resolve(Options({{"seeds", "9,"}})).tasks[0].seeds,
            (std::vector<uint64_t>{9}));
}

TEST(CompareConfigTest, ComplaintsNameTheValueAndWhatIsRight) {
  const auto expect = [](const std::map<std::string, std::string>& texts,
                         const std::string& part) {
    const std::string complaint = Complaint(texts);
    EXPECT_NE(complaint.find(part), std::string::npos)
        << "\"" << complaint << "\" lacks \"" << part << "\"";
    EXPECT_EQ(complaint.find('\n'), std::string::npos) << complaint;
  };
  expect({{"steps", "many"}}, "--steps must be a whole number from 1");
  expect({{"steps", "0"}}, "got '0'");
  expect({{"learning-rate", "nan"}}, "got 'nan'");
  expect({{"encodings", "ropes"}}, "ropes");
  expect({{"encodings", ","}}, "--encodings must name at least one of");
  expect({{"tasks", "copying"}}, "copying");
  expect({{"kind", "both"}}, "decoder or encoder, got 'both'");
  expect({{"tune", "fast"}}, "--tune must be a number");
  expect({{"tune", ","}}, "--tune must be on, off or numbers");
  expect({{"preset", "slow"}}, "kazemnejad, extension, textbook, got 'slow'");
  expect({{"lengths", ","}}, "--lengths must have at least one number");
  expect({{"heads", "3"}}, "multiple of --heads");
  expect({{"extend", "yarns"}}, "got 'yarns'");
  expect({{"extend", "yarn"}, {"encodings", "alibi"}}, "needs a RoPE model");
}

TEST(CompareConfigTest, FileHasTheNamesOfOptions) {
  const std::string path = ConfigPath();
  WriteFile(path,
            R"({"steps": 5, "train_length": 8, "encodings": ["rope", "t5"],
                "learning-rate": 0.001, "lengths": "8,16"})");
  const Settings settings = Resolve(ReadConfig(path));
  std::filesystem::remove(path);
  EXPECT_EQ(settings.tasks[0].steps, 5);
  EXPECT_EQ(settings.tasks[0].train_length, 8);
  EXPECT_EQ(settings.tasks[0].encodings,
            (std::vector<std::string>{"rope", "t5"}));
  EXPECT_EQ(settings.tasks[0].learning_rate, 0.001);
  EXPECT_EQ(settings.tasks[0].lengths, (std::vector<int64_t>{8, 16}));

  EXPECT_NE(
      ConfigComplaint(R"({"stepps": 5})").find("'stepps'; known settings:"),
      std::string::npos);
  EXPECT_NE(ConfigComplaint(R"({"steps": true})").find("got true"),
            std::string::npos);
  EXPECT_NE(ConfigComplaint("{\"steps\": ").find("is not JSON"),
            std::string::npos);
  EXPECT_NE(ConfigComplaint("[1]").find("one JSON object"), std::string::npos);
}

// A later value would silently replace the first.
TEST(CompareConfigTest, ASettingTwiceIsRefused) {
  for (const char* text : {R"({"steps": 5, "heads": 2, "steps": 6})",
                           R"({"train_length": 8, "train-length": 9})",
                           R"({"task": "copy", "tasks": "text"})"}) {
    EXPECT_NE(ConfigComplaint(text).find("twice"), std::string::npos) << text;
  }
}

TEST(CompareConfigTest, EndlessAndLargeConfigsAreRefused) {
  try {
    ReadConfig("/dev/zero");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "/dev/zero has more than the 1048576 bytes that can be right");
  }
  EXPECT_NE(ConfigComplaint(R"({"steps": {"a": 1}})").find("an object within"),
            std::string::npos);
  // Names in a file are shown with plain characters only.
  EXPECT_NE(ConfigComplaint("{\"\\u001b[31m\": 1}").find("'\\x1b[31m'"),
            std::string::npos);
}

TEST(CompareConfigTest, FirstDifferenceNamesTheSetting) {
  const Json a = SettingsJson(Resolve({}), nullptr);
  EXPECT_EQ(FirstDifference(a, a), "");
  const Json b = SettingsJson(
      Resolve(Options({{"tasks", "text"}, {"heads", "2"}})), nullptr);
  EXPECT_EQ(FirstDifference(a, b), "model.heads is 4 there and would be 2 now");
  const Json copy =
      SettingsJson(Resolve(Options({{"tasks", "copy"}})), nullptr);
  const Json longer = SettingsJson(
      Resolve(Options({{"tasks", "copy"}, {"batch", "3"}})), nullptr);
  EXPECT_NE(FirstDifference(copy, longer).find("batch is"), std::string::npos);
}

TEST(ComparePlanTest, HasEveryJobOnce) {
  const Settings settings = Resolve(Options({{"tasks", "text,copy"},
                                             {"encodings", "rope,t5"},
                                             {"seeds", "2"},
                                             {"extend", "none,yarn"},
                                             {"fine-tune-steps", "3"},
                                             {"cost-lengths", "64,128"}}));
  const auto plan = MakePlan(settings);
  EXPECT_EQ(Count(plan, JobKind::kTrain), 2U * 2 * 2);
  EXPECT_EQ(Count(plan, JobKind::kExtend), 2U * 2 * 2);
  EXPECT_EQ(Count(plan, JobKind::kCost), 2U);
  std::set<std::string> ids;
  for (const Job& job : plan) {
    EXPECT_TRUE(ids.insert(job.id).second) << job.id;
    EXPECT_GT(job.work, 0) << job.id;
    if (!job.base.empty()) {
      EXPECT_TRUE(ids.contains(job.base)) << job.id << " comes too early";
    }
  }
  EXPECT_TRUE(ids.contains("text/rope/1"));
  EXPECT_TRUE(ids.contains("extend/rope/2/yarn/3"));
  EXPECT_EQ(plan.back().id, "cost/128") << "times are measured last";
  // none, rope and t5, each in two ways.
  EXPECT_EQ(plan.back().models.size(), 6U);
}

TEST(ComparePlanTest, IsTheSameEveryTime) {
  const auto a = MakePlan(Resolve({}));
  const auto b = MakePlan(Resolve({}));
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    EXPECT_EQ(a[n].id, b[n].id);
    EXPECT_EQ(a[n].work, b[n].work);
  }
}

TEST(ComparePlanTest, PresetsGrow) {
  const auto work = [](const char* preset) {
    double sum = 0;
    for (const Job& job : MakePlan(Resolve(Options({{"preset", preset}})))) {
      sum += job.work;
    }
    return sum;
  };
  EXPECT_LT(4 * work("quick"), work("default"));
  EXPECT_LT(4 * work("default"), work("full"));
}

// Early on there are results for everything, which then become more certain.
TEST(ComparePlanTest, EveryEncodingComesFirstWithOneSeed) {
  const auto plan = MakePlan(Resolve({}));
  size_t n = 0;
  for (; plan[n].first_answer; ++n) {
    EXPECT_EQ(plan[n].spec.task, "text");
    EXPECT_EQ(plan[n].spec.seed, 1U);
  }
  EXPECT_EQ(n, Resolve({}).tasks[0].encodings.size());
  const auto at = [&](const std::string& id) {
    return std::ranges::find(plan, id, &Job::id) - plan.begin();
  };
  EXPECT_LT(at("sort/rope/1"), at("text/none/2"));
  EXPECT_LT(at("extend/rope/1/yarn/50"), at("text/none/2"));
  EXPECT_LT(at("text/rope/2"), at("text/none/3"));
}

TEST(ComparePlanTest, TuningComesBeforeWhatItChoosesFor) {
  const auto plan = MakePlan(Resolve(Options({{"tasks", "text,copy"},
                                              {"encodings", "rope,t5"},
                                              {"steps", "80"},
                                              {"tune", "2,0.5"}})));
  EXPECT_EQ(Count(plan, JobKind::kTune), 2U * 2 * 2);
  std::set<std::string> ids;
  for (const Job& job : plan) {
    for (const std::string& id : NeedsOf(job)) {
      EXPECT_TRUE(ids.contains(id)) << job.id << " comes before " << id;
    }
    ids.insert(job.id);
    if (job.kind == JobKind::kTune) {
      EXPECT_EQ(job.spec.steps, 20);
    } else if (job.kind == JobKind::kTrain) {
      EXPECT_EQ(job.tuned_by.size(), 2U);
    }
  }
  EXPECT_TRUE(ids.contains("tune/text/rope/0.5"));
  EXPECT_EQ(
      Count(MakePlan(Resolve(Options({{"tune", "off"}}))), JobKind::kTune), 0U);
}

TEST(ComparePlanTest, PapersHaveTheirModels) {
  const auto plan = [](const char* preset) {
    return MakePlan(Resolve(Options({{"preset", preset}})));
  };
  EXPECT_EQ(Count(plan("alibi"), JobKind::kTrain), 4U * 5);
  EXPECT_EQ(plan("alibi").size(), 20U);
  EXPECT_EQ(plan("kazemnejad").size(), 6U * 5 * 3);
  EXPECT_EQ(Count(plan("extension"), JobKind::kExtend), 5U * 5 * 2);
  EXPECT_EQ(Count(plan("textbook"), JobKind::kTrain), 3 * Encodings().size());
}

TEST(ComparePlanTest, LeavesOutWhatIsOff) {
  const auto plan = MakePlan(Resolve(Options(
      {{"tasks", "text"}, {"extend", "off"}, {"cost-lengths", "off"}})));
  EXPECT_EQ(Count(plan, JobKind::kTrain), plan.size());
  const auto puzzles = MakePlan(Resolve(Options({{"tasks", "copy"}})));
  EXPECT_EQ(Count(puzzles, JobKind::kExtend), 0U)
      << "only models of text are extended";
}

}  // namespace
}  // namespace locus::lab

// The answers of every task, derived from its tokens by independent code.
#include "lab/tasks/task.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/train/sha256.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

std::string Prose() {
  std::string text;
  for (int i = 0; text.size() < 40000; ++i) {
    text += "Sentence " + std::to_string(i) + " says " +
            std::to_string(i * i % 97) + ".\n";
  }
  return text;
}

// The expected outputs of a sequence, given only the tokens.
using Answers = std::vector<int64_t>;
using Oracle = std::function<Answers(const std::vector<int64_t>& tokens)>;

// Tokens after the mark (the 33rd symbol of the sequence tasks) continue the
// sequence that `order` makes from the items before it.
Answers AfterMark(const std::vector<int64_t>& tokens,
                  const std::function<void(Answers&)>& order) {
  const auto mark = std::find(tokens.begin(), tokens.end(), 32);
  Answers items(tokens.begin(), mark);
  order(items);
  Answers answers(tokens.size(), kUnscored);
  const auto start = static_cast<size_t>(mark - tokens.begin());
  for (size_t i = 0; i < items.size() && start + i < answers.size(); ++i) {
    answers[start + i] = items[i];
  }
  return answers;
}

const std::map<std::string, Oracle>& DecoderOracles() {
  static const std::map<std::string, Oracle> oracles = {
      {"copy", [](const Answers& t) { return AfterMark(t, [](Answers&) {}); }},
      {"reverse",
       [](const Answers& t) {
         return AfterMark(t, [](Answers& items) {
           for (size_t i = 0; i < items.size() / 2; ++i) {
             std::swap(items[i], items[items.size() - 1 - i]);
           }
         });
       }},
      {"sort",
       [](const Answers& t) {
         return AfterMark(t, [](Answers& items) {
           std::multiset<int64_t> sorted(items.begin(), items.end());
           items.assign(sorted.begin(), sorted.end());
         });
       }},
      {"k-back",
       [](const Answers& t) {
         Answers a(t.size(), kUnscored);
         for (size_t i = 0; i + 4 < t.size(); ++i) a[i + 4] = t[i];
         return a;
       }},
      {"count",
       [](const Answers& t) {
         Answers a(t.size(), kUnscored);
         for (size_t i = 5; i < t.size(); ++i) {
           a[i] = t[i] + t[i - 1] + t[i - 2] + t[i - 3] + t[i - 4] + t[i - 5];
         }
         return a;
       }},
      {"recall",
       [](const Answers& t) {
         Answers a(t.size(), kUnscored);
         // Searches backwards from each read, where the task keeps a memory.
         for (size_t i = 0; i < t.size(); ++i) {
           for (size_t j = i; t[i] < 8 && j-- > 0;) {
             if (t[j] < 8 || (t[j] - 8) / 8 != t[i]) continue;
             a[i] = (t[j] - 8) % 8;
             break;
           }
         }
         return a;
       }},
      {"text",
       [](const Answers& t) {
         Answers a(t.begin() + 1, t.end());
         a.push_back(kUnscored);  // not among the tokens
         return a;
       }},
  };
  return oracles;
}

class TaskTest : public testing::TestWithParam<std::string> {
 protected:
  const TaskInfo& Task() const { return FindTask(GetParam()); }
  const Corpus corpus_ = Corpus::FromText("prose", Prose());
  SequenceRequest Request(ModelKind kind, int64_t length) const {
    return {.kind = kind, .length = length, .corpus = &corpus_};
  }
};

TEST_P(TaskTest, AnswersFollowFromTheTokens) {
  for (const int64_t length : {8, 31, 64, 100}) {
    const auto request = Request(ModelKind::kDecoder, length);
    std::vector<Sequence> sequences =
        TrainingBatch(Task(), request, /*batch=*/8, /*seed=*/5, /*step=*/3);
    for (Sequence& s : ScoredSequences(Task(), request, 0, 8)) {
      sequences.push_back(std::move(s));
    }
    for (const Sequence& s : sequences) {
      ASSERT_EQ(s.tokens.size(), static_cast<size_t>(length));
      Answers want = DecoderOracles().at(GetParam())(s.tokens);
      Answers got = s.targets;
      if (GetParam() == "text") got.back() = kUnscored;
      EXPECT_EQ(got, want) << "length " << length;
      EXPECT_TRUE(std::any_of(s.targets.begin(), s.targets.end(),
                              [](int64_t t) { return t != kUnscored; }));
      for (const int64_t token : s.tokens) {
        EXPECT_TRUE(token >= 0 && token < Task().vocabulary);
      }
    }
  }
}

// An encoder's answers are blanked in its input, unless the task labels tokens;
// inputs with their answers restored are what a decoder would see.
TEST_P(TaskTest, EncodersSeeNoAnswer) {
  if (GetParam() == "k-back" || GetParam() == "count" ||
      GetParam() == "recall") {
    EXPECT_EQ(
        TrainingBatch(Task(), Request(ModelKind::kEncoder, 40), 4, 1, 2)[3]
            .targets,
        TrainingBatch(Task(), Request(ModelKind::kDecoder, 40), 4, 1, 2)[3]
            .targets);
    return;
  }
  for (Sequence& s :
       TrainingBatch(Task(), Request(ModelKind::kEncoder, 41), 8, 1, 2)) {
    for (size_t i = 0; i < s.tokens.size(); ++i) {
      if (s.targets[i] == kUnscored) continue;
      EXPECT_EQ(s.tokens[i], Task().vocabulary - 1);
      s.tokens[i] = s.targets[i];
    }
    if (GetParam() == "text") {
      std::string text;
      for (const int64_t t : s.tokens) text.push_back(static_cast<char>(t));
      EXPECT_NE(corpus_.train().find(text), std::string_view::npos);
      continue;
    }
    const Answers want = DecoderOracles().at(GetParam())(s.tokens);
    for (size_t i = 0; i + 1 < s.tokens.size(); ++i) {
      EXPECT_EQ(s.targets[i + 1], want[i]);
    }
  }
}

TEST_P(TaskTest, DataDependsOnSeedAndStepAlone) {
  const auto request = Request(ModelKind::kDecoder, 32);
  const auto tokens = [&](uint64_t seed, int64_t step) {
    std::vector<int64_t> all;
    for (const Sequence& s : TrainingBatch(Task(), request, 4, seed, step)) {
      all.insert(all.end(), s.tokens.begin(), s.tokens.end());
    }
    return all;
  };
  EXPECT_EQ(tokens(1, 0), tokens(1, 0));
  EXPECT_NE(tokens(1, 0), tokens(1, 1));
  EXPECT_NE(tokens(1, 0), tokens(2, 0));
}

TEST_P(TaskTest, ScoredSequencesAreTheSameHoweverTheyAreCut) {
  const auto request = Request(ModelKind::kDecoder, 32);
  const auto whole = ScoredSequences(Task(), request, 0, 6);
  const auto part = ScoredSequences(Task(), request, 4, 2);
  EXPECT_EQ(whole[4].tokens, part[0].tokens);
  EXPECT_EQ(whole[5].targets, part[1].targets);
}

INSTANTIATE_TEST_SUITE_P(Every, TaskTest, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TaskInfo& task : Tasks())
                             names.emplace_back(task.name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TextTaskTest, EveryLengthIsScoredOnTheSameBytes) {
  const Corpus corpus = Corpus::FromText("prose", Prose());
  const TaskInfo& task = FindTask("text");
  std::vector<std::vector<int64_t>> targets;
  for (const int64_t length : {16, 64, 256}) {
    const int64_t count = NumScoredSequences(task, &corpus, length, 1024);
    EXPECT_EQ(count, 1024 / length);
    targets.emplace_back();
    for (const Sequence& s : ScoredSequences(
             task, {.length = length, .corpus = &corpus}, 0, count)) {
      targets.back().insert(targets.back().end(), s.targets.begin(),
                            s.targets.end());
    }
  }
  EXPECT_EQ(targets[0], targets[1]);
  EXPECT_EQ(targets[0], targets[2]);
}

TEST(TextTaskTest, TrainingNeverSeesTheHeldOutPart) {
  const std::string text = std::string(90000, 'a') + std::string(10000, 'b');
  const Corpus corpus = Corpus::FromText("ab", text);
  for (const Sequence& s : TrainingBatch(
           FindTask("text"), {.length = 1000, .corpus = &corpus}, 200, 1, 1)) {
    EXPECT_EQ(std::count(s.targets.begin(), s.targets.end(), 'b'), 0);
  }
  for (const Sequence& s : ScoredSequences(
           FindTask("text"), {.length = 1000, .corpus = &corpus}, 0, 9)) {
    EXPECT_EQ(std::count(s.tokens.begin(), s.tokens.end(), 'a'), 0);
  }
}

TEST(TaskListTest, RefusesInOneSentence) {
  EXPECT_THROW(FindTask("juggling"), Error);
  EXPECT_THROW(TrainingBatch(FindTask("copy"), {.length = 4}, 1, 1, 1), Error);
  EXPECT_THROW(TrainingBatch(FindTask("text"), {.length = 64}, 1, 1, 1), Error);
  EXPECT_THROW(Corpus::FromText("short", "too short"), Error);
  EXPECT_THROW(Corpus::Open("/nonexistent"), Error);
}

// 300 MB in 300 kB of gzip.
TEST(TaskTest, ACorpusHasALimit) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("locus_corpus_" + std::to_string(getpid()) + ".gz");
  gzFile file = gzopen(path.c_str(), "wb");
  const std::string megabyte(size_t{1} << 20, ' ');
  for (int n = 0; n < 300; ++n) {
    gzwrite(file, megabyte.data(), static_cast<unsigned>(megabyte.size()));
  }
  gzclose(file);
  try {
    Corpus::Open(path.string());
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), "the corpus " + path.string() +
                            " has more than the 268435456 bytes that can be "
                            "trained on");
  }
  std::filesystem::remove(path);
}

// The examples of FIPS 180-4, and edge cases of the padding.
TEST(Sha256Test, MatchesTheStandard) {
  EXPECT_EQ(Sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace locus::lab

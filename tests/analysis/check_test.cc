// The verdicts predicted by theory, for every encoding of the list.
#include "locus/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// One letter per property, in the order of CheckReport: yes, no, - (not
// applicable). Tables are random here, so properties that only training would
// bring (smoothness, decay) are "no".
//
//  order              | bounded           | linear-shift      | norm-preserving
//  . direction        | . length-invariant| . continuous      | . decays
//  . . unique         | . . relative      | . . purpose       | . . past-length
const std::map<std::string, std::string> kTheory = {
    // No position at all: permutation-equivariant.
    {"none", "nnn -yy --n -ny"},
    // Unbounded: swamps x; E[pos + k] is affine, not linear, in E[pos].
    {"index", "yyy nyn nyy nny"},
    // Bounded, at the price of depending on the length.
    {"normalised-index", "yyy ynn nyy nny"},
    // Jumps: all digits may flip at once. Nearby numbers share leading digits.
    {"binary", "yyy yyn nny nyy"},
    // Smooth and unique, but a shift is not a linear map.
    {"sine", "yyy yyn nyy nyy"},
    // The shift is a rotation, and the inner product decays; scores of
    // projected sums still depend on the absolute position of the pair.
    {"sinusoidal", "yyy yyn yyy nyy"},
    // Limited to its table.
    {"learned", "yyy yyn nny nnn"},
    {"key-offset", "yyy yyy -ny nnn"},
    // All offsets beyond the clip are the same.
    {"shaw", "yyn yyy -ny nny"},
    // Sinusoids of the offset: smooth; the example's table ends.
    {"transformer-xl", "yyy yyy -yy nnn"},
    {"deberta", "yyn yyy -ny nny"},
    // Untied absolute positions: not relative.
    {"tupe", "yyy yyn -ny -nn"},
    // Buckets: far offsets share one.
    {"t5", "yyn yyy -ny -ny"},
    // |m - n| ignores direction; the penalty is unbounded.
    {"alibi", "yny nyy -yy -yy"},
    {"kerple", "yny nyy -yy -yy"},
    // Divides by psi(max(m, L)): depends on m past the threshold.
    {"fire", "yny yyn -yy -ny"},
    // A sum of cosines: even, bounded, decaying.
    {"sandwich", "yny yyy -yy -yy"},
    {"swin", "yyy yyy -ny -nn"},
    // Orthogonal, relative, with a decaying bound.
    {"rope", "yyy yyy -yy yyy"},
    {"rope-learned", "yyy yyy -yy yyy"},
    {"rope-2d", "yyy yyy -yy yyy"},
    {"rope-mixed", "yyy yyy -yy yyy"},
    {"mrope", "yyy yyy -yy yyy"},
    // Scales q and k in addition to rotating them.
    {"xpos", "yyy yyy -yy nyy"},
};

std::string Letters(const CheckReport& report) {
  std::string letters;
  for (size_t n = 0; n < report.properties.size(); ++n) {
    if (n > 0 && n % 3 == 0) letters += ' ';
    const Verdict v = report.properties[n].verdict;
    letters += v == Verdict::kYes ? 'y' : v == Verdict::kNo ? 'n' : '-';
  }
  return letters;
}

std::string AllSentences(const CheckReport& report) {
  std::string text;
  for (const Property& p : report.properties) {
    text += p.name + ": " + p.sentence + "\n";
  }
  return text;
}

TEST(CheckTest, VerdictsAreThoseOfTheory) {
  for (const auto& [name, letters] : kTheory) {
    const CheckReport report = Check(FindEncoding(name));
    EXPECT_EQ(Letters(report), letters) << name << "\n" << AllSentences(report);
  }
}

TEST(CheckTest, VerdictsDoNotHangOnTheSeed) {
  for (const EncodingInfo& info : Encodings()) {
    EXPECT_EQ(Letters(Check(info, {.seed = 29})), Letters(Check(info)))
        << info.name;
  }
}

TEST(CheckTest, EveryPropertyIsExplained) {
  for (const EncodingInfo& info : Encodings()) {
    const CheckReport report = Check(info);
    EXPECT_EQ(report.encoding, info.name);
    EXPECT_EQ(report.properties.size(), 12u);
    for (const Property& p : report.properties) {
      EXPECT_FALSE(p.question.empty()) << info.name << " " << p.name;
      EXPECT_FALSE(p.measure.empty()) << info.name << " " << p.name;
      EXPECT_TRUE(p.sentence.ends_with(".")) << info.name << ": " << p.sentence;
      EXPECT_EQ(&report.Find(p.name), &p);
    }
  }
}

// The number printed beside a sentence appears in the sentence.
TEST(CheckTest, SentencesHaveTheNumber) {
  // The number by itself rather than part of another; a full stop may follow.
  const auto has = [](const std::string& sentence, const std::string& number) {
    const std::string digits = "0123456789.e+-^";
    const std::string padded = " " + sentence + " ";
    for (size_t at = 0; (at = padded.find(number, at)) != std::string::npos;
         ++at) {
      const size_t end = at + number.size();
      const bool stops = padded[end] == '.' && padded[end + 1] == ' ';
      if (digits.find(padded[at - 1]) == std::string::npos &&
          (stops || digits.find(padded[end]) == std::string::npos)) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(has("It is 0.5 of it.", "0.5"));
  EXPECT_FALSE(has("It is 10.5 of 10^6.", "0.5"));
  EXPECT_FALSE(has("It is 10.5 of 10^6.", "10"));
  EXPECT_TRUE(has("It is 0.5. That is all.", "0.5"));
  int numbers = 0;
  for (const ExampleConfig& config :
       {ExampleConfig{},
        ExampleConfig{.heads = 1, .head_dim = 8, .length = 20, .seed = 5}}) {
    for (const EncodingInfo& info : Encodings()) {
      for (const Property& p : Check(info, config).properties) {
        if (std::isnan(p.value)) continue;
        char number[32];
        std::snprintf(number, sizeof(number), "%.3g", p.value);
        EXPECT_TRUE(has(p.sentence, number))
            << info.name << " " << p.name << ": " << number << " beside \""
            << p.sentence << "\"";
        ++numbers;
      }
    }
  }
  EXPECT_GT(numbers, 350);
}

// A verdict follows from the number and its threshold with a clear margin:
// equal means below 1e-9, different means above 1e-4.
TEST(CheckTest, ExactPropertiesAreFarFromTheirThreshold) {
  for (const EncodingInfo& info : Encodings()) {
    const CheckReport report = Check(info);
    for (const char* name : {"order", "direction", "length-invariant",
                             "relative", "linear-shift", "norm-preserving"}) {
      const Property& p = report.Find(name);
      if (p.verdict == Verdict::kDoesNotApply) continue;
      EXPECT_TRUE(p.value < 1e-9 || p.value > 1e-4)
          << info.name << " " << name << " " << p.value;
      EXPECT_EQ(p.threshold, 1e-7);
    }
  }
}

TEST(CheckTest, NumbersAreThoseOfTheFormulas) {
  // The index grows with the position, ALiBi's bias with the distance.
  EXPECT_NEAR(Check(FindEncoding("index")).Find("bounded").value, 10.0, 1e-9);
  EXPECT_NEAR(Check(FindEncoding("alibi")).Find("bounded").value, 10.0, 1e-9);
  // From 63 to 64 all seven digits flip: as far apart as any two positions.
  EXPECT_NEAR(Check(FindEncoding("binary")).Find("continuous").value, 1.0,
              1e-12);
  // One step of 127: the index is a line.
  EXPECT_NEAR(Check(FindEncoding("index")).Find("continuous").value,
              1.0 / 127.0, 1e-12);
  // Two heads of slopes 1/16 and 1/256, from distance 1 to the mean of 64..127.
  const CheckReport alibi = Check(FindEncoding("alibi"), {.heads = 2});
  EXPECT_NEAR(alibi.Find("decays").value,
              (1.0 / 16 + 1.0 / 256) / 2 * (95.5 - 1.0), 1e-9);
  EXPECT_NE(alibi.Find("decays").sentence.find("linearly"), std::string::npos);
}

TEST(CheckTest, ScalingsOfRopeShowInTheProperties) {
  const EncodingInfo& rope = FindEncoding("rope");
  const auto with = [&](std::map<std::string, std::string> options) {
    return Check(rope, {.options = std::move(options)});
  };
  // The base depends on the length of the call.
  const CheckReport dynamic = with({{"scaling", "dynamic"}});
  EXPECT_EQ(dynamic.Find("length-invariant").verdict, Verdict::kNo);
  EXPECT_EQ(dynamic.Find("relative").verdict, Verdict::kYes);
  // YaRN's gain 0.1 ln 4 + 1 lengthens q and k.
  const CheckReport yarn = with({{"scaling", "yarn"}});
  EXPECT_EQ(yarn.Find("norm-preserving").verdict, Verdict::kNo);
  EXPECT_NEAR(yarn.Find("norm-preserving").value, 0.1 * std::log(4.0), 1e-12);
  EXPECT_EQ(yarn.Find("length-invariant").verdict, Verdict::kYes);
  const CheckReport linear = with({{"scaling", "linear"}});
  EXPECT_EQ(linear.Find("norm-preserving").verdict, Verdict::kYes);
}

TEST(CheckTest, OptionsThatChangeTheTheoryChangeTheVerdict) {
  // A concatenated index gets the same verdicts.
  EXPECT_EQ(
      Letters(Check(FindEncoding("index"), {.options = {{"mode", "concat"}}})),
      kTheory.at("index"));
  // Every offset within the length is inside the clip, so none are shared.
  EXPECT_EQ(Check(FindEncoding("shaw"), {.options = {{"clip", "127"}}})
                .Find("unique")
                .verdict,
            Verdict::kYes);
  // Causal buckets cannot see later keys, but distinguish before from after.
  EXPECT_EQ(Check(FindEncoding("t5"), {.options = {{"bidirectional", "false"}}})
                .Find("direction")
                .verdict,
            Verdict::kYes);
  // Separate slopes for later keys give ALiBi a direction.
  const Alibi asymmetric(2, {.slopes = {0.5, 0.25}, .future_slopes = {1, 2}});
  EXPECT_EQ(Check(asymmetric, {.heads = 2}).Find("direction").verdict,
            Verdict::kYes);
}

TEST(CheckTest, RefusalsCarryTheirMessage) {
  EXPECT_EQ(Check(FindEncoding("learned")).Find("past-length").sentence,
            "Not defined: " + ErrorOf([] {
              const std::vector<int64_t> past = {256};
              FindEncoding("learned").example({})->Embed(past);
            }) + ".");
  EXPECT_NE(
      Check(FindEncoding("t5")).Find("past-length").sentence.find("saturated"),
      std::string::npos);
}

TEST(CheckTest, SmallAndOddSizesWork) {
  for (const EncodingInfo& info : Encodings()) {
    // An even dim for those that need it, divisible by 4 for 2-D RoPE.
    const ExampleConfig small{.heads = 1, .head_dim = 8, .length = 9};
    EXPECT_EQ(Check(info, small).properties.size(), 12u) << info.name;
  }
}

TEST(CheckTest, RefusesBadInput) {
  const EncodingInfo& rope = FindEncoding("rope");
  EXPECT_EQ(ErrorOf([&] { Check(rope, {.length = 7}); }),
            "a check needs a length of at least 8, got 7");
  const NoPosition none;
  EXPECT_EQ(ErrorOf([&] { Check(none, {.heads = 0}); }),
            "a check needs at least one head of one channel, got 0 heads of "
            "64");
  EXPECT_EQ(
      ErrorOf([&] {
        Check(none,
              {.heads = 2, .head_dim = (int64_t{1} << 60) + 1, .length = 16});
      }),
      "a check of 2 heads of 1152921504606846977 channels at length 16 is "
      "too large");
  EXPECT_EQ(
      ErrorOf([&] { Check(rope).Find("beauty"); }),
      "there is no property 'beauty'; known properties: order, direction, "
      "unique, bounded, length-invariant, relative, linear-shift, "
      "continuous, purpose, norm-preserving, decays, past-length");
}

}  // namespace
}  // namespace locus::testing

// Every entry of encodings.inc must have a test: each one's test defines a
// symbol that this file refers to, so a missing one does not link.
#include <gtest/gtest.h>

#include <array>

#include "locus/descriptor.h"
#include "locus/error.h"
#include "support/tensors.h"

namespace locus::testing {
#define LOCUS_ENCODING(name, Class) extern const bool covers_##name;
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING

namespace {

TEST(CoverageTest, EveryEncodingHasATest) {
  const std::array covered = {
#define LOCUS_ENCODING(name, Class) covers_##name,
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING
  };
  EXPECT_EQ(covered.size(), Encodings().size());
  for (bool c : covered) EXPECT_TRUE(c);
}

TEST(CoverageTest, ListIsComplete) {
  for (const EncodingInfo& info : Encodings()) {
    EXPECT_FALSE(info.title.empty()) << info.name;
    EXPECT_FALSE(info.formula.empty()) << info.name;
    EXPECT_FALSE(info.paper.empty()) << info.name;
    EXPECT_FALSE(info.models.empty()) << info.name;
    EXPECT_FALSE(info.extrapolation_note.empty()) << info.name;
    const auto example = info.example({});
    EXPECT_EQ(example->Name(), info.name);
    EXPECT_EQ(info.trainable, !example->Params().empty()) << info.name;
    EXPECT_EQ(&FindEncoding(info.name), &info);
    EXPECT_EQ(&FindEncoding(info.class_name), &info);
  }
}

TEST(CoverageTest, RefusesUnknownEncodings) {
  const std::string refusal = ErrorOf([] { FindEncoding("ropes"); });
  EXPECT_TRUE(refusal.starts_with(
      "there is no encoding 'ropes'; known encodings: none, index, "))
      << refusal;
  for (const EncodingInfo& info : Encodings()) {
    EXPECT_NE(refusal.find(" " + std::string(info.name)), std::string::npos)
        << info.name;
  }
  EXPECT_THROW(FindEncoding(""), Error);
  for (const char* name : {"cope", "CoPE"}) {
    EXPECT_EQ(ErrorOf([&] { FindEncoding(name); }),
              "CoPE is outside: its positions are sums of gates over the "
              "scores of the keys in between, so no bucket of m - n can stand "
              "for them");
  }
}

TEST(CoverageTest, RefusesBadExampleOptions) {
  const auto build = [](const char* encoding, const char* option,
                        const char* value) {
    return ErrorOf([&] {
      FindEncoding(encoding).example({.options = {{option, value}}});
    });
  };
  EXPECT_EQ(build("none", "base", "1"), "none has no option 'base'");
  EXPECT_EQ(build("sandwich", "bass", "1"),
            "sandwich has no option 'bass'; it has base, dim");
  EXPECT_EQ(build("alibi", "bias_max", "8x"),
            "alibi option bias_max must be a number, got '8x'");
  EXPECT_EQ(build("binary", "bits", "2.5"),
            "binary option bits must be a whole number, got '2.5'");
  EXPECT_EQ(build("rope", "layout", "half"),
            "rope option layout must be one of interleaved, halves, got "
            "'half'");
  EXPECT_EQ(build("rope", "base", "nan"),
            "RoPE's base must be positive and finite, got nan");
  EXPECT_EQ(build("shaw", "clip", "-1"),
            "shaw option clip must be a positive number, at most 2^24, got -1");
  // Every encoding rejects an unknown option.
  for (const EncodingInfo& info : Encodings()) {
    const std::string message = ErrorOf([&] {
      info.example({.options = {{"no-such", "1"}}});
    });
    EXPECT_TRUE(message.starts_with(std::string(info.name) +
                                    " has no option 'no-such'"))
        << message;
  }
}

// Positions 0 and 10^12 in one call: no table may span the range.
TEST(CoverageTest, FarApartPositionsAreServedOrRefused) {
  for (const EncodingInfo& info : Encodings()) {
    const auto encoding = info.example({});
    Shape shape = Shape::SelfAttention(8, 64, 1);
    shape.max_q_pos = shape.max_offset = 1'000'000'000'000;
    try {
      encoding->Lower(shape);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("000000"), std::string::npos)
          << info.name << ": " << e.what();
    }
  }
  EXPECT_EQ(ErrorOf([] {
              Shape shape = Shape::SelfAttention(8, 64, 1);
              shape.max_offset = int64_t{1} << 40;
              FindEncoding("kerple").example({})->Lower(shape);
            }),
            "the offsets of a bias span 0 .. 1099511627776, more than 2^27 in "
            "one call");
}

}  // namespace
}  // namespace locus::testing

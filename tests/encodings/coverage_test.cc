// Every entry of encodings.inc must have a test: each one's test defines a
// symbol that this file refers to, so a missing one does not link.
#include <gtest/gtest.h>

#include <array>

#include "locus/encoding.h"

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

}  // namespace
}  // namespace locus::testing

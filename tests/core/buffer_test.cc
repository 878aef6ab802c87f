// Scratch memory that is kept between calls.
#include "core/buffer.h"

#include <gtest/gtest.h>

#include <vector>

#include "locus/tensor.h"

namespace locus {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

// Whether released memory is reused: it still has what was written.
bool ComesAgain(int64_t floats) {
  const float mark = static_cast<float>(floats) + 0.5F;
  {
    FloatBuffer buffer(floats);
    buffer.data()[floats / 2] = mark;
  }
  const FloatBuffer buffer(floats);
  return buffer.data()[floats / 2] == mark;
}

TEST(FloatBufferTest, KeepsLargeBlocks) {
  EXPECT_TRUE(ComesAgain(64 << 10));
  EXPECT_TRUE(ComesAgain(3 * kMega));
}

TEST(FloatBufferTest, GivesUpTheOldForTheNew) {
  // Four times the limit, in blocks that do not fit each other's requests.
  std::vector<FloatBuffer> many;
  for (int64_t n = 0; n < 16; ++n) many.emplace_back(8 * kMega + n);
  many.clear();
  EXPECT_TRUE(ComesAgain(20 * kMega));
  EXPECT_TRUE(ComesAgain(kMega));
}

TEST(FloatBufferTest, KeepsNothingThatIsTooLarge) {
  // More than 128 MiB is returned to the system at once, and the rest is kept.
  EXPECT_TRUE(ComesAgain(20 * kMega));
  { const FloatBuffer huge(33 * kMega); }
  EXPECT_TRUE(ComesAgain(20 * kMega));
}

// Fresh pages are zeros.
TEST(FloatBufferTest, KeepsNoMoreThanTheLimit) {
  EXPECT_TRUE(ComesAgain(20 * kMega));
  SetKeptMemory(4 * kMega);
  const FloatBuffer fresh(20 * kMega);
  EXPECT_NE(fresh.data()[10 * kMega], static_cast<float>(20 * kMega) + 0.5F);
  EXPECT_FALSE(ComesAgain(21 * kMega));
  EXPECT_TRUE(ComesAgain(kMega));
  SetKeptMemory(128 * kMega);
  EXPECT_TRUE(ComesAgain(21 * kMega));
}

}  // namespace
}  // namespace locus

// Rotation when memory runs out.
#include "faults/failing_new.h"
#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

TEST(RotateMemoryTest, OutOfPlace) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    // One task, several, and heads that are long contiguous ranges.
    for (int64_t length : {5, 600, 2100}) {
      const Tensor x = RandomTensor({1, 2, length, 64}, 1).To(dtype);
      const Rotation rotation =
          Rope(64, PairLayout::kHalves).RotationFor(length);
      for (int threads : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << ", " << length << " tokens, "
                     << threads << " threads");
        ExpectSurvivesEveryAllocation([&] {
          return std::vector<Tensor>{
              Rotate(x, rotation, {}, /*inverse=*/false, threads)};
        });
        if (HasFailure()) return;
      }
    }
  }
}

TEST(RotateMemoryTest, ByTables) {
  const Rotation rotation =
      Rope(32, PairLayout::kHalves).RotationFor(/*length=*/600);
  const Tensor x = RandomTensor({2, 4, 600, 32}, 1).To(DType::kF32);
  for (int threads : {1, 2}) {
    ExpectSurvivesEveryAllocation([&] {
      const RotaryTable table = RotaryTable::UpTo(rotation, 600, threads);
      return std::vector<Tensor>{
          Rotate(x, table, {.threads = threads}),
          RotateWith(x, table.cos(), table.sin(), PairLayout::kHalves,
                     {.threads = threads})};
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace locus::testing

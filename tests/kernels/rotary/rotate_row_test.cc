// Rows rotated within attention are bitwise equal to those of Rotate.
#include "kernels/compare.h"
#include "locus/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotate_row_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/rotary/rotate_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

void OneRow(const Rotation& rotation, const float* cos, const float* sin,
            bool back, float* x) {
  RotateRow(rotation, cos, sin, x, x, back);
}

// A row of another storage type, as floats.
void StoredRow(const Rotation& rotation, const float* cos, const float* sin,
               const Tensor& x, float* y) {
  WithType(x.dtype(), [&]<typename T>() {
    RotateRow(rotation, cos, sin, static_cast<const T*>(x.Raw()), y);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(OneRow);
HWY_EXPORT(StoredRow);

namespace testing {
namespace {

TEST(RotateRowTest, HasTheBitsOfRotate) {
  OnEveryTarget([] {
    for (PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalves}) {
      for (int64_t pairs : {1, 4, 7, 16, 29, 64}) {
        Rotation r{.layout = layout, .rotary_dim = 2 * pairs};
        for (int64_t p = 0; p < pairs; ++p) {
          r.theta.push_back(1.0 / static_cast<double>(p + 1));
        }
        const std::vector<int64_t> position = {12'345};
        const RotaryTable table(r, position);
        const float* cos = table.cos().Data<float>();
        const float* sin = table.sin().Data<float>();
        const Tensor x = RandomTensor({1, 1, 1, 2 * pairs}, 1).To(DType::kF32);
        for (bool back : {false, true}) {
          std::vector<float> row(x.Data<float>(), x.Data<float>() + 2 * pairs);
          HWY_DYNAMIC_DISPATCH(OneRow)
          (r, cos, sin, back, row.data());
          const Tensor y = back ? RotateBackward(x, table) : Rotate(x, table);
          for (size_t d = 0; d < row.size(); ++d) {
            EXPECT_EQ(row[d], y.Data<float>()[d]) << "channel " << d;
          }
        }
        // Promotion during the rotation equals promotion before it.
        for (DType dtype : {DType::kBF16, DType::kF16}) {
          const Tensor stored = x.To(dtype);
          std::vector<float> row(static_cast<size_t>(2 * pairs));
          HWY_DYNAMIC_DISPATCH(StoredRow)(r, cos, sin, stored, row.data());
          const Tensor y = Rotate(stored.To(DType::kF32), table);
          for (size_t d = 0; d < row.size(); ++d) {
            EXPECT_EQ(row[d], y.Data<float>()[d]) << "channel " << d;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace testing
}  // namespace locus
#endif

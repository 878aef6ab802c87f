// The gradient of a rotation's frequencies, from rotated rows and their
// gradients. The derivative of a rotated pair (a, b) by its angle is (-b, a),
// whatever its gain, so
//   d_angle = a d_b - b d_a,   d_theta += d_angle * coordinate.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_ROTATION_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_ROTATION_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_ROTATION_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_ROTATION_INL_H_
#endif

#include <vector>

#include "kernels/backward/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class ThetaGrad {
 public:
  // For tokens of sequence b.
  ThetaGrad(const Call& call, int64_t b) {
    if (!call.terms.rotate || !call.terms.rotate->trains) return;
    rotation_ = &*call.terms.rotate;
    // Scores depend on differences of angles, so the angle gradients of a
    // call's queries and keys add up to zero, and the origin of coordinates is
    // arbitrary. An origin near the tokens avoids cancellation in their float32
    // gradients.
    const Tokens& keys = call.Keys(b);
    if (keys.size() > 0) origin_ = keys.Position(0);
  }

  // Adds the contribution of the token at `position`, times `factor`: `row`
  // points to its rotated row, d [D] is the gradient of that row, and d_theta
  // that of the head's frequencies.
  void Add(int64_t position, const InPanels& row, const float* d, double factor,
           std::vector<double>& d_theta) const {
    const Rotation& r = *rotation_;
    const int64_t axes = r.NumAxes();
    const bool mixed = r.Mixed();
    const auto at = [&row](int64_t c) {
      return static_cast<double>(
          row.Panel(AlignDown(c, kColsI))[c - AlignDown(c, kColsI)]);
    };
    for (int64_t a = 0; a < axes; ++a) {
      const double steps =
          factor * (r.Shifted(a, position) - r.Shifted(a, origin_));
      for (int64_t p = 0; p < r.NumPairs(); ++p) {
        if (!mixed && r.AxisOf(p) != a) continue;
        const int64_t c0 = r.FirstOfPair(p), c1 = r.SecondOfPair(p);
        // Rows that no pair sees may hold anything, and 0 * NaN is NaN.
        if (d[c0] == 0.0F && d[c1] == 0.0F) continue;
        d_theta[static_cast<size_t>(mixed ? p * axes + a : p)] +=
            steps * (at(c0) * static_cast<double>(d[c1]) -
                     at(c1) * static_cast<double>(d[c0]));
      }
    }
  }

 private:
  const Rotation* rotation_ = nullptr;
  int64_t origin_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_ROTATION_INL_H_

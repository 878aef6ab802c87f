// Cosines and sines of positions under a rotation, in float32.
//
// With c a coordinate, split into c = base + k, 0 <= k < 64:
//   exp(i c theta) = exp(i base theta) exp(i k theta).
// The first factor serves 64 neighbours and the second, one of 64 rows, every
// position of a call. Their product is taken in float64: its roundings, a few
// 2^-53, vanish in float32. The split depends on the coordinate alone, so a
// position has the same bits whatever its neighbours, threads or call.
#ifndef LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_
#define LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "locus/terms.h"

namespace locus::kernels {

// Throws Error unless `rotation` can turn single tokens at `positions` of a
// head of `head_dim` channels.
void CheckTokenRotation(const Rotation& rotation, int64_t head_dim,
                        std::span<const int64_t> positions);

class CosSinRows {
 public:
  // Prepares for `positions`. The rotation must outlive this object.
  CosSinRows(const Rotation& rotation, std::span<const int64_t> positions,
             int threads);

  // Rows [positions, pairs] of cos and of sin, gain included, for positions
  // among those prepared for. Decays are left out.
  void Fill(std::span<const int64_t> positions, float* cos, float* sin) const;

 private:
  struct Split {
    int64_t base = 0;
    int64_t k = 0;
  };
  Split SplitOf(int64_t coordinate) const;

  const Rotation& rotation_;
  int64_t far_ = 0;  // coordinates from here on are not split
  std::vector<std::vector<int64_t>> pairs_of_axis_;
  std::vector<double> near_cos_, near_sin_;  // exp(i k theta): [64, pairs]
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_

// Cosines and sines of positions under a rotation, in float32.
//
// With c a coordinate, split into c = base + k, 0 <= k < 64:
//   exp(i (c + offset) theta) = exp(i (base + offset) theta) exp(i k theta).
// The first factor serves 64 neighbours; the second, one of 64 rows, serves
// every position of a call. Their product is computed in float64, whose
// rounding errors of a few 2^-53 vanish in float32. The split depends on the
// coordinate alone, so the bits for a position do not depend on its neighbours,
// threads or call. If a pair rotates by several axes, their exponentials are
// multiplied.
#ifndef LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_
#define LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "locus/terms.h"

namespace locus::kernels {

// Throws Error unless `rotation` can rotate single tokens at `positions` of a
// head of `head_dim` channels.
void CheckTokenRotation(const Rotation& rotation, int64_t head_dim,
                        std::span<const int64_t> positions);

// Whether two rotations have the same cosines and sines; decays are ignored.
bool SameAngles(const Rotation& a, const Rotation& b);

// Rows of cosines and sines, [tokens, pairs] each; nullptr if there are none.
struct CosSinView {
  CosSinView operator+(int64_t n) const { return {cos + n, sin + n}; }
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Memory that a thread needs to compute them, allocated beforehand.
struct CosSinScratch {
  std::vector<double> angles;
  std::vector<int64_t> bases;
};

// A source of cosines and sines by token id: a position, or a row of a table.
// Thread-safe.
class CosSinSource {
 public:
  virtual ~CosSinSource() = default;
  // Scratch for calls of Floats.
  virtual CosSinScratch NewScratch() const { return {}; }
  // Writes cos and sin, [ids, pairs] each.
  virtual void Floats(std::span<const int64_t> ids, CosSinScratch& scratch,
                      float* cos, float* sin) const noexcept = 0;
  // If the rows of `ids` are adjacent in memory as floats, points *rows at
  // them; else returns false.
  virtual bool Direct(std::span<const int64_t> /*ids*/,
                      CosSinView* /*rows*/) const {
    return false;
  }
  // Writes cos and sin, [pairs] each.
  virtual void Doubles(int64_t id, double* cos, double* sin) const noexcept = 0;
};

// The angles of a rotation for one key head; ids are positions.
class RotationSource final : public CosSinSource {
 public:
  // `positions`: those that Floats() will be called with. The rotation must
  // outlive this object.
  RotationSource(const Rotation& rotation, std::span<const int64_t> positions,
                 int threads, int64_t kv_head = 0);

  CosSinScratch NewScratch() const override;
  // Includes the gain but not decays.
  void Floats(std::span<const int64_t> positions, CosSinScratch& scratch,
              float* cos, float* sin) const noexcept override;
  // The same with `threads` threads.
  void Floats(std::span<const int64_t> positions, float* cos, float* sin,
              int threads) const;
  void Doubles(int64_t position, double* cos,
               double* sin) const noexcept override {
    rotation_.CosSin(position, cos, sin, kv_head_);
  }

 private:
  struct Split {
    int64_t base = 0;
    int64_t k = 0;
  };
  Split SplitOf(int64_t coordinate) const;
  // The frequencies of one axis, indexed by pair.
  struct Frequencies {
    double operator[](int64_t p) const {
      return first[static_cast<size_t>(p) * step];
    }
    const double* first;
    size_t step;
  };
  Frequencies Theta(size_t axis) const;
  double Offset(size_t axis) const {
    return rotation_.axes.empty() ? 0.0 : rotation_.axes[axis].offset;
  }
  void OneAxisPerPair(std::span<const int64_t> positions,
                      CosSinScratch& scratch, float* cos,
                      float* sin) const noexcept;
  void MixedAxes(std::span<const int64_t> positions, CosSinScratch& scratch,
                 float* cos, float* sin) const noexcept;

  const Rotation& rotation_;
  const int64_t kv_head_;
  const std::span<const double> theta_;  // of kv_head_
  int64_t far_ = 0;  // coordinates from here on are not split
  std::vector<std::vector<int64_t>> pairs_of_axis_;  // mixed: all of each
  // exp(i k theta): [64, pairs], or [axes, 64, pairs] if axes are mixed.
  std::vector<double> near_cos_, near_sin_;
};

// Cosines and sines of the tokens of a call in float32: [heads, tokens, pairs]
// each, with the heads of the rotation. With a decay, they include the factor
// exp(sign * log_decay * (position - origin)).
struct RotationTable {
  RotationTable() = default;
  RotationTable(const Rotation& rotation, std::span<const int64_t> positions,
                double sign, int64_t origin, int threads = 1);
  // The row of token i in a key head.
  int64_t Row(int64_t kv_head, int64_t i) const {
    return kv_head * head_step + i;
  }
  // Rotates x [head_dim] in place by a row: RotateRow of rotate_row-inl.h with
  // run-time dispatch.
  void RotateRow(const Rotation& rotation, int64_t row,
                 float* x) const noexcept;

  std::vector<float> cos;
  std::vector<float> sin;
  int64_t head_step = 0;  // rows between heads; 0 if they share them
};

// The origin of decays: they are split between query and key around the middle
// of the call, so that neither overflows float32 over a long range. Throws
// Error if that is not enough.
int64_t DecayOrigin(const Rotation& rotation, const Shape& shape);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_

// Cosines and sines of positions under a rotation, in float32.
//
// With c a coordinate, split into c = base + k, 0 <= k < 64:
//   exp(i (c + offset) theta) = exp(i (base + offset) theta) exp(i k theta).
// The first factor serves 64 neighbours and the second, one of 64 rows, every
// position of a call. Their product is taken in float64: its roundings, a few
// 2^-53, vanish in float32. The split depends on the coordinate alone, so a
// position has the same bits whatever its neighbours, threads or call. Where a
// pair turns by several axes, the exponentials of all are multiplied.
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

// Whether two rotations have the same cosines and sines, decays aside.
bool SameAngles(const Rotation& a, const Rotation& b);

// Rows of cosines and sines, [tokens, pairs] each; none: nullptr.
struct CosSinView {
  CosSinView operator+(int64_t n) const { return {cos + n, sin + n}; }
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// What a thread needs to compute them, allocated beforehand.
struct CosSinScratch {
  std::vector<double> angles;
  std::vector<int64_t> bases;
};

// Where cosines and sines come from, by the id of a token: a position, or a row
// of a table. Called from many threads at once.
class CosSinSource {
 public:
  virtual ~CosSinSource() = default;
  // The scratch of a call to Floats.
  virtual CosSinScratch NewScratch() const { return {}; }
  // [ids, pairs] each.
  virtual void Floats(std::span<const int64_t> ids, CosSinScratch& scratch,
                      float* cos, float* sin) const noexcept = 0;
  // The same rows where they lie one after another in memory, else false.
  virtual bool Direct(std::span<const int64_t> /*ids*/,
                      CosSinView* /*rows*/) const {
    return false;
  }
  // [pairs] each.
  virtual void Doubles(int64_t id, double* cos, double* sin) const noexcept = 0;
};

// The angles of a rotation in one key head; ids are positions.
class RotationSource final : public CosSinSource {
 public:
  // Floats() is for positions among these. The rotation must outlive this
  // object.
  RotationSource(const Rotation& rotation, std::span<const int64_t> positions,
                 int threads, int64_t kv_head = 0);

  CosSinScratch NewScratch() const override;
  // Gain included; decays are left out.
  void Floats(std::span<const int64_t> positions, CosSinScratch& scratch,
              float* cos, float* sin) const noexcept override;
  // The same on many threads.
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
  // The frequencies of one axis, of pair p at [p].
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
  const std::span<const double> theta_;  // of that head
  int64_t far_ = 0;  // coordinates from here on are not split
  std::vector<std::vector<int64_t>> pairs_of_axis_;  // mixed: all of each
  // exp(i k theta): [64, pairs], one after another for each axis where they are
  // mixed.
  std::vector<double> near_cos_, near_sin_;
};

// Cosines and sines of the tokens of a call in float: [heads, tokens, pairs]
// each, heads as the rotation has. With a decay, they carry exp(sign *
// log_decay * (position - origin)).
struct RotationTable {
  RotationTable() = default;
  RotationTable(const Rotation& rotation, std::span<const int64_t> positions,
                double sign, int64_t origin, int threads = 1);
  // The row of token i in a key head.
  int64_t Row(int64_t kv_head, int64_t i) const {
    return kv_head * head_step + i;
  }
  // Rotates x [head_dim] in place by a row: RotateRow of rotate_row-inl.h,
  // dispatched.
  void RotateRow(const Rotation& rotation, int64_t row,
                 float* x) const noexcept;

  std::vector<float> cos;
  std::vector<float> sin;
  int64_t head_step = 0;  // rows from head to head; 0: they share them
};

// Where decays of a rotation begin: they are split between query and key around
// the middle of the call, so that neither overflows float32 over a long range.
// Throws Error where that does not suffice.
int64_t DecayOrigin(const Rotation& rotation, const Shape& shape);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_ANGLES_H_

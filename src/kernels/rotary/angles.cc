#include "kernels/rotary/angles.h"

#include <algorithm>
#include <bitset>
#include <cmath>

#include "core/fail.h"
#include "core/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/angles.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/rotary/rotate_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
// The product of two complex rows, rounded to float.
void MultiplyRows(const double* a_cos, const double* a_sin, const double* b_cos,
                  const double* b_sin, int64_t pairs, float* cos, float* sin) {
  // Multiplies from pair p on, in whole vectors of D; returns the first pair
  // left.
  const auto multiply = [=]<class D>(D d, int64_t p) HWY_ATTR {
    const hn::Rebind<float, D> df;
    const int64_t step = static_cast<int64_t>(hn::Lanes(d));
    for (; p + step <= pairs; p += step) {
      const auto ac = hn::LoadU(d, a_cos + p), as = hn::LoadU(d, a_sin + p);
      const auto bc = hn::LoadU(d, b_cos + p), bs = hn::LoadU(d, b_sin + p);
      const auto c = hn::NegMulAdd(as, bs, hn::Mul(ac, bc));
      const auto s = hn::MulAdd(ac, bs, hn::Mul(as, bc));
      hn::StoreU(hn::DemoteTo(df, c), df, cos + p);
      hn::StoreU(hn::DemoteTo(df, s), df, sin + p);
    }
    return p;
  };
  multiply(hn::CappedTag<double, 1>(), multiply(hn::ScalableTag<double>(), 0));
}

void RotateOneRow(const Rotation& rotation, const kernels::RotationTable& table,
                  int64_t row, float* x) {
  RotateRow(rotation, table, row, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(MultiplyRows);
HWY_EXPORT(RotateOneRow);

namespace kernels {
namespace {

// 64: a call of 4096 positions evaluates 64 bases and 64 near rows, the
// smallest sum.
constexpr int64_t kNear = 64;

}  // namespace

void CheckTokenRotation(const Rotation& rotation, int64_t head_dim,
                        std::span<const int64_t> positions) {
  if (!rotation.log_decay.empty()) {
    Fail(
        "a rotation with decay (xPos) acts on pairs of tokens and cannot "
        "rotate one tensor alone");
  }
  Shape shape;
  shape.head_dim = head_dim;
  shape.q_heads = shape.kv_heads = rotation.heads;
  if (!positions.empty()) {
    const auto [lo, hi] = std::ranges::minmax(positions);
    shape.min_q_pos = shape.min_k_pos = lo;
    shape.max_q_pos = shape.max_k_pos = hi;
  }
  Validate(Terms{.rotate = rotation}, shape);
}

bool SameAngles(const Rotation& a, const Rotation& b) {
  const auto same_axis = [](const Axis& x, const Axis& y) {
    return x.divisor == y.divisor && x.modulus == y.modulus &&
           x.offset == y.offset;
  };
  return a.theta == b.theta && a.heads == b.heads &&
         a.rotary_dim == b.rotary_dim && a.gain == b.gain &&
         a.angles == b.angles && a.axis == b.axis &&
         a.packed_from == b.packed_from && a.origin == b.origin &&
         std::ranges::equal(a.axes, b.axes, same_axis);
}

RotationSource::Split RotationSource::SplitOf(int64_t coordinate) const {
  if (coordinate <= -far_ || coordinate >= far_) {
    return {.base = coordinate, .k = 0};
  }
  const int64_t k = coordinate & (kNear - 1);
  return {.base = coordinate - k, .k = k};
}

RotationSource::Frequencies RotationSource::Theta(size_t axis) const {
  if (!rotation_.Mixed()) return {theta_.data(), 1};
  return {theta_.data() + axis, pairs_of_axis_.size()};
}

RotationSource::RotationSource(const Rotation& rotation,
                               std::span<const int64_t> positions, int threads,
                               int64_t kv_head)
    : rotation_(rotation),
      kv_head_(kv_head),
      theta_(rotation.ThetaOf(kv_head)) {
  if (rotation.angles == AngleMode::kFloat32) return;  // evaluated one by one
  const int64_t pairs = rotation.NumPairs();
  const bool mixed = rotation.Mixed();
  pairs_of_axis_.resize(static_cast<size_t>(rotation.NumAxes()));
  for (int64_t p = 0; p < pairs; ++p) {
    if (mixed) {
      for (auto& of_axis : pairs_of_axis_) of_axis.push_back(p);
    } else {
      pairs_of_axis_[static_cast<size_t>(rotation.AxisOf(p))].push_back(p);
    }
  }
  double fastest = 1.0;
  for (double theta : theta_) fastest = std::max(fastest, std::abs(theta));
  // Up to an angle of 2^27, the product base * theta is rounded by at most
  // 2^-27, a quarter of the final rounding to float32. Beyond, results would
  // depend on the choice of base, so each coordinate is evaluated by itself.
  far_ = static_cast<int64_t>(0x1p27 / fastest);
  std::bitset<kNear> used(1);  // k = 0 also stands for "not split"
  for (int64_t position : positions) {
    if (used.all()) break;
    if (!rotation.Rotates(position)) continue;
    for (size_t a = 0; a < pairs_of_axis_.size(); ++a) {
      if (pairs_of_axis_[a].empty()) continue;
      const int64_t c = rotation.Coordinate(static_cast<int64_t>(a), position);
      used.set(static_cast<size_t>(SplitOf(c).k));
    }
  }
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < kNear; ++k) {
    if (used[static_cast<size_t>(k)]) rows.push_back(k);
  }
  const size_t tables = mixed ? pairs_of_axis_.size() : 1;
  near_cos_.resize(tables * static_cast<size_t>(kNear * pairs));
  near_sin_.resize(near_cos_.size());
  const auto evaluate = [&](int64_t r) noexcept {
    const int64_t k = rows[static_cast<size_t>(r)];
    for (size_t a = 0; a < tables; ++a) {
      const Frequencies theta = Theta(a);
      const int64_t row = (static_cast<int64_t>(a) * kNear + k) * pairs;
      double* cos = near_cos_.data() + row;
      double* sin = near_sin_.data() + row;
      for (int64_t p = 0; p < pairs; ++p) {
        const double angle = static_cast<double>(k) * theta[p];
        cos[p] = std::cos(angle);
        sin[p] = std::sin(angle);
      }
    }
  };
  ParallelFor(static_cast<int64_t>(rows.size()), threads, evaluate);
}

// Cosines and sines of the bases (per axis if mixed), and one row for the
// product or the neighbours.
CosSinScratch RotationSource::NewScratch() const {
  const size_t axes = pairs_of_axis_.size();
  const size_t pairs = static_cast<size_t>(rotation_.NumPairs());
  // AngleMode::kFloat32 has no axes here, and needs two rows.
  const size_t rows = 2 * (rotation_.Mixed() ? std::max<size_t>(axes, 1) : 1) +
                      (axes > 1 ? 2 : 0);
  return {.angles = std::vector<double>(rows * pairs),
          .bases = std::vector<int64_t>(axes)};
}

void RotationSource::Floats(std::span<const int64_t> positions,
                            CosSinScratch& scratch, float* cos,
                            float* sin) const noexcept {
  const Rotation& r = rotation_;
  if (r.angles == AngleMode::kFloat32) {
    const size_t size = static_cast<size_t>(r.NumPairs());
    double* c = scratch.angles.data();
    double* s = c + size;
    for (int64_t position : positions) {
      r.CosSin(position, c, s, kv_head_);
      for (size_t p = 0; p < size; ++p) {
        *cos++ = static_cast<float>(c[p]);
        *sin++ = static_cast<float>(s[p]);
      }
    }
    return;
  }
  // Runs of tokens that all rotate or all do not.
  while (!positions.empty()) {
    const bool rotates = r.Rotates(positions[0]);
    size_t count = 1;
    while (count < positions.size() && r.Rotates(positions[count]) == rotates) {
      ++count;
    }
    const int64_t floats = static_cast<int64_t>(count) * r.NumPairs();
    if (!rotates) {
      std::fill_n(cos, floats, static_cast<float>(r.gain));
      std::fill_n(sin, floats, 0.0F);
    } else if (r.Mixed()) {
      MixedAxes(positions.first(count), scratch, cos, sin);
    } else {
      OneAxisPerPair(positions.first(count), scratch, cos, sin);
    }
    positions = positions.subspan(count);
    cos += floats;
    sin += floats;
  }
}

void RotationSource::OneAxisPerPair(std::span<const int64_t> positions,
                                    CosSinScratch& scratch, float* cos,
                                    float* sin) const noexcept {
  const Rotation& r = rotation_;
  const int64_t pairs = r.NumPairs();
  const size_t size = static_cast<size_t>(pairs), axes = pairs_of_axis_.size();
  double* c = scratch.angles.data();
  double* s = c + size;
  std::vector<int64_t>& base = scratch.bases;
  double* mixed_cos = s + size;
  double* mixed_sin = mixed_cos + size;
  bool fresh = true;
  for (int64_t position : positions) {
    const double* near_cos = mixed_cos;
    const double* near_sin = mixed_sin;
    for (size_t a = 0; a < axes; ++a) {
      const std::vector<int64_t>& of_axis = pairs_of_axis_[a];
      if (of_axis.empty()) continue;
      const Split split =
          SplitOf(r.Coordinate(static_cast<int64_t>(a), position));
      if (fresh || split.base != base[a]) {
        base[a] = split.base;
        for (int64_t p : of_axis) {
          const size_t at = static_cast<size_t>(p);
          const double angle =
              (static_cast<double>(split.base) + Offset(a)) * theta_[at];
          c[at] = r.gain * std::cos(angle);
          s[at] = r.gain * std::sin(angle);
        }
      }
      const double* row_cos = near_cos_.data() + split.k * pairs;
      const double* row_sin = near_sin_.data() + split.k * pairs;
      if (axes == 1) {
        near_cos = row_cos;
        near_sin = row_sin;
        continue;
      }
      for (int64_t p : of_axis) {
        mixed_cos[p] = row_cos[p];
        mixed_sin[p] = row_sin[p];
      }
    }
    fresh = false;
    HWY_DYNAMIC_DISPATCH(MultiplyRows)
    (c, s, near_cos, near_sin, pairs, cos, sin);
    cos += pairs;
    sin += pairs;
  }
}

void RotationSource::MixedAxes(std::span<const int64_t> positions,
                               CosSinScratch& scratch, float* cos,
                               float* sin) const noexcept {
  const Rotation& r = rotation_;
  const int64_t pairs = r.NumPairs();
  const size_t size = static_cast<size_t>(pairs), axes = pairs_of_axis_.size();
  // Per axis: its base, and exp(i (base + offset) theta).
  std::vector<int64_t>& base = scratch.bases;
  double* c = scratch.angles.data();
  double* s = c + axes * size;
  // The product of all factors but the near row of the last axis.
  double* row_cos = s + axes * size;
  double* row_sin = row_cos + size;
  const auto multiply = [&](const double* by_cos, const double* by_sin) {
    for (size_t p = 0; p < size; ++p) {
      const double x = row_cos[p], y = row_sin[p];
      row_cos[p] = x * by_cos[p] - y * by_sin[p];
      row_sin[p] = x * by_sin[p] + y * by_cos[p];
    }
  };
  bool fresh = true;
  for (int64_t position : positions) {
    std::fill_n(row_cos, size, r.gain);
    std::fill_n(row_sin, size, 0.0);
    for (size_t a = 0; a < axes; ++a) {
      const Split split =
          SplitOf(r.Coordinate(static_cast<int64_t>(a), position));
      if (fresh || split.base != base[a]) {
        base[a] = split.base;
        const Frequencies theta = Theta(a);
        for (size_t p = 0; p < size; ++p) {
          const double angle = (static_cast<double>(split.base) + Offset(a)) *
                               theta[static_cast<int64_t>(p)];
          c[a * size + p] = std::cos(angle);
          s[a * size + p] = std::sin(angle);
        }
      }
      multiply(c + a * size, s + a * size);
      const int64_t near = (static_cast<int64_t>(a) * kNear + split.k) * pairs;
      if (a + 1 < axes) {
        multiply(near_cos_.data() + near, near_sin_.data() + near);
        continue;
      }
      HWY_DYNAMIC_DISPATCH(MultiplyRows)
      (row_cos, row_sin, near_cos_.data() + near, near_sin_.data() + near,
       pairs, cos, sin);
    }
    fresh = false;
    cos += pairs;
    sin += pairs;
  }
}

void RotationSource::Floats(std::span<const int64_t> positions, float* cos,
                            float* sin, int threads) const {
  // A block evaluates one angle per pair for every 64 consecutive positions,
  // and one more if they do not start at a multiple of 64: negligible from 256
  // on.
  constexpr size_t kStep = 256;
  const int64_t blocks =
      static_cast<int64_t>((positions.size() + kStep - 1) / kStep);
  std::vector<CosSinScratch> workers(
      static_cast<size_t>(std::min<int64_t>(threads, blocks)), NewScratch());
  ParallelFor(blocks, threads, [&](int64_t block, int worker) noexcept {
    const size_t begin = static_cast<size_t>(block) * kStep;
    const size_t count = std::min(kStep, positions.size() - begin);
    const int64_t at = static_cast<int64_t>(begin) * rotation_.NumPairs();
    Floats(positions.subspan(begin, count),
           workers[static_cast<size_t>(worker)], cos + at, sin + at);
  });
}

int64_t DecayOrigin(const Rotation& rotation, const Shape& shape) {
  const int64_t lo = shape.MinPosition(), hi = shape.MaxPosition();
  double steepest = 0.0;
  for (double d : rotation.log_decay) {
    steepest = std::max(steepest, std::abs(d));
  }
  // exp(80) = 5e34: a product of two such gains with ordinary q and k stays
  // finite, and whatever underflows is below 1e-30 of the score.
  if (steepest * static_cast<double>(hi - lo) / 2.0 > 80.0) {
    Fail(
        "a decaying rotation covers at most {:.0f} positions in float32, "
        "got {} .. {}",
        160.0 / steepest, lo, hi);
  }
  return lo + (hi - lo) / 2;
}

RotationTable::RotationTable(const Rotation& r,
                             std::span<const int64_t> positions, double sign,
                             int64_t origin, int threads) {
  const size_t pairs = static_cast<size_t>(r.NumPairs());
  const size_t heads = static_cast<size_t>(r.heads), tokens = positions.size();
  if (heads > 1) head_step = static_cast<int64_t>(tokens);
  cos.resize(heads * tokens * pairs);
  sin.resize(cos.size());
  for (size_t h = 0; h < heads; ++h) {
    RotationSource(r, positions, threads, static_cast<int64_t>(h))
        .Floats(positions, cos.data() + h * tokens * pairs,
                sin.data() + h * tokens * pairs, threads);
  }
  if (r.log_decay.empty()) return;
  const auto decay = [&](int64_t i) noexcept {
    const size_t row = static_cast<size_t>(i);
    const double steps = static_cast<double>(positions[row % tokens] - origin);
    for (size_t p = 0; p < pairs; ++p) {
      const auto gain =
          static_cast<float>(std::exp(sign * r.log_decay[p] * steps));
      cos[row * pairs + p] *= gain;
      sin[row * pairs + p] *= gain;
    }
  };
  ParallelFor(static_cast<int64_t>(heads * tokens), threads, decay);
}

void RotationTable::RotateRow(const Rotation& rotation, int64_t row,
                              float* x) const noexcept {
  HWY_DYNAMIC_DISPATCH(RotateOneRow)(rotation, *this, row, x);
}

}  // namespace kernels
}  // namespace locus
#endif

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
  // From pair p on, in whole vectors of D; returns the first pair left.
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
                  int64_t i, float* x) {
  RotateRow(rotation, table, i, x);
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

// 64: a call of 4096 positions evaluates 64 bases and 64 near rows, the fewest
// together.
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
  if (!positions.empty()) {
    const auto [lo, hi] = std::ranges::minmax(positions);
    shape.min_q_pos = shape.min_k_pos = lo;
    shape.max_q_pos = shape.max_k_pos = hi;
  }
  Validate(Terms{.rotate = rotation}, shape);
}

RotationSource::Split RotationSource::SplitOf(int64_t coordinate) const {
  if (coordinate <= -far_ || coordinate >= far_) {
    return {.base = coordinate, .k = 0};
  }
  const int64_t k = coordinate & (kNear - 1);
  return {.base = coordinate - k, .k = k};
}

RotationSource::RotationSource(const Rotation& rotation,
                               std::span<const int64_t> positions, int threads)
    : rotation_(rotation) {
  if (rotation.angles == AngleMode::kFloat32) return;  // evaluated one by one
  const int64_t pairs = rotation.NumPairs();
  pairs_of_axis_.resize(std::max<size_t>(rotation.axes.size(), 1));
  double fastest = 1.0;
  for (int64_t p = 0; p < pairs; ++p) {
    const size_t at = static_cast<size_t>(p);
    const size_t axis =
        rotation.axis.empty() ? 0 : static_cast<size_t>(rotation.axis[at]);
    pairs_of_axis_[axis].push_back(p);
    fastest = std::max(fastest, std::abs(rotation.theta[at]));
  }
  // Below an angle of 2^27 the product base * theta is rounded by at most
  // 2^-27, a quarter of the final rounding to float32. Beyond, the choice of
  // base would begin to show, so each coordinate is evaluated by itself.
  far_ = static_cast<int64_t>(0x1p27 / fastest);
  std::bitset<kNear> used(1);  // k = 0 also stands for "not split"
  for (int64_t position : positions) {
    if (used.all()) break;
    for (const auto& of_axis : pairs_of_axis_) {
      if (of_axis.empty()) continue;
      const int64_t c = rotation.Coordinate(of_axis.front(), position);
      used.set(static_cast<size_t>(SplitOf(c).k));
    }
  }
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < kNear; ++k) {
    if (used[static_cast<size_t>(k)]) rows.push_back(k);
  }
  near_cos_.resize(static_cast<size_t>(kNear * pairs));
  near_sin_.resize(static_cast<size_t>(kNear * pairs));
  ParallelFor(static_cast<int64_t>(rows.size()), threads, [&](int64_t r) {
    const int64_t k = rows[static_cast<size_t>(r)];
    for (int64_t p = 0; p < pairs; ++p) {
      const double angle =
          static_cast<double>(k) * rotation.theta[static_cast<size_t>(p)];
      near_cos_[static_cast<size_t>(k * pairs + p)] = std::cos(angle);
      near_sin_[static_cast<size_t>(k * pairs + p)] = std::sin(angle);
    }
  });
}

void RotationSource::Floats(std::span<const int64_t> positions, float* cos,
                            float* sin) const {
  const Rotation& r = rotation_;
  const int64_t pairs = r.NumPairs();
  const size_t size = static_cast<size_t>(pairs);
  std::vector<double> c(size), s(size);
  if (r.angles == AngleMode::kFloat32) {
    for (int64_t position : positions) {
      r.CosSin(position, c.data(), s.data());
      for (size_t p = 0; p < size; ++p) {
        *cos++ = static_cast<float>(c[p]);
        *sin++ = static_cast<float>(s[p]);
      }
    }
    return;
  }
  const size_t axes = pairs_of_axis_.size();
  std::vector<int64_t> base(axes);
  std::vector<double> mixed_cos(axes > 1 ? size : 0), mixed_sin(mixed_cos);
  bool fresh = true;
  for (int64_t position : positions) {
    const double* near_cos = mixed_cos.data();
    const double* near_sin = mixed_sin.data();
    for (size_t a = 0; a < axes; ++a) {
      const std::vector<int64_t>& of_axis = pairs_of_axis_[a];
      if (of_axis.empty()) continue;
      const Split split = SplitOf(r.Coordinate(of_axis.front(), position));
      if (fresh || split.base != base[a]) {
        base[a] = split.base;
        for (int64_t p : of_axis) {
          const size_t at = static_cast<size_t>(p);
          const double angle = static_cast<double>(split.base) * r.theta[at];
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
        mixed_cos[static_cast<size_t>(p)] = row_cos[p];
        mixed_sin[static_cast<size_t>(p)] = row_sin[p];
      }
    }
    fresh = false;
    HWY_DYNAMIC_DISPATCH(MultiplyRows)
    (c.data(), s.data(), near_cos, near_sin, pairs, cos, sin);
    cos += pairs;
    sin += pairs;
  }
}

void RotationSource::Floats(std::span<const int64_t> positions, float* cos,
                            float* sin, int threads) const {
  // A block evaluates one angle per pair for each 64 positions in a row, and
  // one more if they do not start at a multiple of 64: little, from 256 on.
  constexpr size_t kStep = 256;
  const int64_t blocks =
      static_cast<int64_t>((positions.size() + kStep - 1) / kStep);
  ParallelFor(blocks, threads, [&](int64_t block) {
    const size_t begin = static_cast<size_t>(block) * kStep;
    const size_t count = std::min(kStep, positions.size() - begin);
    const int64_t at = static_cast<int64_t>(begin) * rotation_.NumPairs();
    Floats(positions.subspan(begin, count), cos + at, sin + at);
  });
}

int64_t DecayOrigin(const Rotation& rotation, const Shape& shape) {
  const int64_t lo = shape.MinPosition(), hi = shape.MaxPosition();
  double steepest = 0.0;
  for (double d : rotation.log_decay) {
    steepest = std::max(steepest, std::abs(d));
  }
  // exp(80) = 5e34: a product of two such gains with ordinary q and k stays
  // finite, and what underflows is below 1e-30 of the score.
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
  cos.resize(positions.size() * pairs);
  sin.resize(cos.size());
  RotationSource(r, positions, threads)
      .Floats(positions, cos.data(), sin.data(), threads);
  if (r.log_decay.empty()) return;
  ParallelFor(static_cast<int64_t>(positions.size()), threads, [&](int64_t i) {
    const size_t row = static_cast<size_t>(i);
    const double steps = static_cast<double>(positions[row] - origin);
    for (size_t p = 0; p < pairs; ++p) {
      const auto gain =
          static_cast<float>(std::exp(sign * r.log_decay[p] * steps));
      cos[row * pairs + p] *= gain;
      sin[row * pairs + p] *= gain;
    }
  });
}

void RotationTable::RotateRow(const Rotation& rotation, int64_t i,
                              float* x) const noexcept {
  HWY_DYNAMIC_DISPATCH(RotateOneRow)(rotation, *this, i, x);
}

}  // namespace kernels
}  // namespace locus
#endif

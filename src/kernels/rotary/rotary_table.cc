// Tables of cosines and sines, made once.
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/rotary/angles.h"
#include "kernels/rotary/caller_table.h"
#include "locus/rotary.h"

namespace locus {

RotaryTable::RotaryTable(const Rotation& rotation,
                         std::span<const int64_t> positions, int threads)
    : layout_(rotation.layout), first_channel_(rotation.first_channel) {
  kernels::CheckTokenRotation(
      rotation, std::max<int64_t>(first_channel_, 0) + rotation.rotary_dim,
      positions);
  const int64_t count = static_cast<int64_t>(positions.size());
  const int64_t pairs = rotation.NumPairs();
  cos_ = Tensor::Empty(DType::kF32, {count, pairs});
  sin_ = Tensor::Empty(DType::kF32, {count, pairs});
  float* cos = cos_.MutableData<float>();
  float* sin = sin_.MutableData<float>();
  const int workers = NumThreads(threads);
  const kernels::CosSinRows rows(rotation, positions, workers);
  // A block evaluates one angle a pair for each 64 positions in a row, and one
  // more if they do not start at a multiple of 64: little, from 256 on.
  constexpr int64_t kStep = 256;
  ParallelFor((count + kStep - 1) / kStep, workers, [&](int64_t block) {
    const int64_t begin = block * kStep;
    const int64_t size = std::min(kStep, count - begin);
    rows.Fill(positions.subspan(static_cast<size_t>(begin),
                                static_cast<size_t>(size)),
              cos + begin * pairs, sin + begin * pairs);
  });
}

RotaryTable RotaryTable::UpTo(const Rotation& rotation, int64_t length,
                              int threads) {
  if (length < 0) Fail("a table's length must not be negative, got {}", length);
  std::vector<int64_t> positions(static_cast<size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);
  return {rotation, positions, threads};
}

RotaryTable::RotaryTable(const Tensor& cos, const Tensor& sin,
                         PairLayout layout, int64_t rotary_dim,
                         int64_t first_channel)
    : layout_(layout), first_channel_(first_channel) {
  kernels::CheckGiven(cos, sin, rotary_dim);
  if (first_channel < 0) {
    Fail("the first rotary channel must not be negative, got {}",
         first_channel);
  }
  const int64_t count = cos.size(0), pairs = rotary_dim / 2;
  const kernels::TableSource source(cos, sin, pairs, layout);
  for (int64_t row = 0; row < count; ++row) source.CheckTwins(row);
  cos_ = Tensor::Empty(DType::kF32, {count, pairs});
  sin_ = Tensor::Empty(DType::kF32, {count, pairs});
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  source.Floats(ids, cos_.MutableData<float>(), sin_.MutableData<float>());
}

}  // namespace locus

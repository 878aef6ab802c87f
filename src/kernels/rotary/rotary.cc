// The public functions of rotary.h: argument checks, and the source of angles
// (a rotation, a precomputed table, or the caller's tables).
#include "locus/rotary.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/rotary/angles.h"
#include "kernels/rotary/caller_table.h"
#include "kernels/rotary/rotate_tensor.h"

namespace locus {
namespace {

using kernels::CosSinScratch;
using kernels::RotateCall;
using kernels::RotateDirection;
using kernels::RotationSource;
using kernels::TableSource;

// -------------------------------------------------------------------- checks

void CheckRank(const Tensor& x) {
  if (x.rank() != 4) {
    Fail("rotation needs x [B, H, L, D], got {}", x.Describe());
  }
  if (x.dtype() == DType::kI8) {
    Fail("rotation needs floating-point x, got {}", x.Describe());
  }
}

// first .. first + count - 1.
std::vector<int64_t> CountFrom(int64_t first, int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// The ids of the tokens of x: those given, or first .. first + L - 1.
std::vector<int64_t> TokenIds(const Tensor& x, std::span<const int64_t> given,
                              int64_t first, const char* name) {
  const int64_t length = x.size(2), tokens = x.size(0) * length;
  const int64_t count = static_cast<int64_t>(given.size());
  if (count != 0 && count != length && count != tokens) {
    Fail("{} must number {} or {}, got {}", name, length, tokens, count);
  }
  if (count == 0) return CountFrom(first, length);
  return {given.begin(), given.end()};
}

void CheckRows(std::span<const int64_t> ids, int64_t rows) {
  for (int64_t id : ids) {
    if (id < 0 || id >= rows) {
      Fail("a token takes row {} of a table that has rows 0 .. {}", id,
           rows - 1);
    }
  }
}

// Throws Error if elements of x may share an address: the stride of each axis
// must exceed the extent of the axes inside it. Stricter than necessary for
// some unusual views.
void CheckInPlace(const Tensor& x) {
  CheckRank(x);
  if (x.NumElements() == 0) return;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (size_t a = 0; a < 4; ++a) {
    if (x.shape()[a] > 1) {
      axes.emplace_back(std::abs(x.strides()[a]), x.shape()[a]);
    }
  }
  std::ranges::sort(axes);
  int64_t reach = 0;
  for (const auto& [stride, size] : axes) {
    if (stride <= reach) {
      Fail(
          "rotation in place needs elements that do not overlap, got {} with "
          "strides [{}]",
          x.Describe(), fmt::join(x.strides(), ", "));
    }
    reach += stride * (size - 1);
  }
}

// ----------------------------------------------------------------- execution

// An uninitialised tensor like x with its memory order: tokens inside heads, or
// heads inside tokens, so that both are accessed contiguously.
Tensor EmptyLike(const Tensor& x) {
  CheckRank(x);
  const bool heads_inside =
      x.size(1) > 1 && std::abs(x.strides()[1]) < std::abs(x.strides()[2]);
  if (!heads_inside) return Tensor::Empty(x.dtype(), x.shape());
  return Tensor::Empty(x.dtype(), {x.size(0), x.size(2), x.size(1), x.size(3)})
      .Transposed(1, 2);
}

// A view of heads [first, first + count) of x [B, H, L, D].
Tensor HeadsOf(const Tensor& x, int64_t first, int64_t count) {
  if (count == x.size(1)) return x;
  std::vector<int64_t> shape = x.shape();
  shape[1] = count;
  const int64_t bytes = first * x.strides()[1] * DTypeBytes(x.dtype());
  return Tensor::Borrow(x.dtype(), std::move(shape), x.strides(),
                        static_cast<const char*>(x.Raw()) + bytes);
}

RotateCall CallOf(const Tensor& x, const Tensor& out, PairLayout layout,
                  int64_t first_channel, int64_t pairs) {
  RotateCall call{.from = x.Raw(),
                  .to = const_cast<void*>(out.Raw()),
                  .dtype = x.dtype(),
                  .batch = x.size(0),
                  .heads = x.size(1),
                  .length = x.size(2),
                  .dim = x.size(3),
                  .layout = layout,
                  .first_channel = first_channel,
                  .pairs = pairs};
  std::ranges::copy(x.strides(), call.from_stride.begin());
  std::ranges::copy(out.strides(), call.to_stride.begin());
  return call;
}

void RunRotation(const Tensor& x, const Tensor& out, const Rotation& rotation,
                 std::span<const int64_t> positions, RotateDirection direction,
                 int threads) {
  const std::vector<int64_t> ids =
      TokenIds(x, positions, /*first=*/0, "positions");
  kernels::CheckTokenRotation(rotation, x.size(3), ids);
  if (x.size(1) % rotation.heads != 0) {
    Fail("frequencies of {} heads do not fit x {}", rotation.heads,
         x.Describe());
  }
  const bool floats = x.dtype() != DType::kF64;
  const int64_t step = x.size(1) / rotation.heads;  // heads that rotate alike
  for (int64_t h = 0; h < rotation.heads; ++h) {
    const RotationSource source(rotation, floats ? ids : std::vector<int64_t>(),
                                NumThreads(threads), h);
    RunRotate(
        CallOf(HeadsOf(x, h * step, step), HeadsOf(out, h * step, step),
               rotation.layout, rotation.first_channel, rotation.NumPairs()),
        source, ids, direction, threads);
  }
}

void RunTable(const Tensor& x, const Tensor& out, const RotaryTable& table,
              const RotateOptions& options, RotateDirection direction) {
  const int64_t length = x.size(2), tokens = x.size(0) * length;
  const int64_t rows = table.NumRows(), pairs = table.NumPairs();
  const int64_t first = table.first_channel();
  if (first + 2 * pairs > x.size(3)) {
    Fail("rotary channels {} .. {} do not fit a head of {}", first,
         first + 2 * pairs - 1, x.size(3));
  }
  std::vector<int64_t> ids;
  if (!options.rows.empty() || options.first_row) {
    if (!options.rows.empty() && options.first_row) {
      Fail("either rows or first_row, not both: got {} rows and first_row {}",
           options.rows.size(), *options.first_row);
    }
    ids = TokenIds(x, options.rows, options.first_row.value_or(0), "rows");
  } else if (rows == length || rows == tokens) {
    ids = CountFrom(0, rows);
  } else {
    Fail(
        "a table of {} rows does not fit {} or {} tokens; rows or first_row "
        "would say which of them to take",
        rows, length, tokens);
  }
  CheckRows(ids, rows);
  const TableSource source(table.cos(), table.sin(), pairs, table.layout());
  RunRotate(CallOf(x, out, table.layout(), first, pairs), source, ids,
            direction, options.threads);
}

RotateDirection DirectionOf(bool inverse) {
  return inverse ? RotateDirection::kInverse : RotateDirection::kForward;
}

}  // namespace

// --------------------------------------------------------------- by rotation

Tensor Rotate(const Tensor& x, const Rotation& rotation,
              std::span<const int64_t> positions, bool inverse, int threads) {
  Tensor out = EmptyLike(x);
  RunRotation(x, out, rotation, positions, DirectionOf(inverse), threads);
  return out;
}

void RotateInPlace(Tensor& x, const Rotation& rotation,
                   std::span<const int64_t> positions, bool inverse,
                   int threads) {
  CheckInPlace(x);
  RunRotation(x, x, rotation, positions, DirectionOf(inverse), threads);
}

Tensor RotateBackward(const Tensor& d_out, const Rotation& rotation,
                      std::span<const int64_t> positions, int threads) {
  Tensor d_x = EmptyLike(d_out);
  RunRotation(d_out, d_x, rotation, positions, RotateDirection::kTranspose,
              threads);
  return d_x;
}

// ------------------------------------------------------------------ by table

RotaryTable::RotaryTable(const Rotation& rotation,
                         std::span<const int64_t> positions, int threads)
    : layout_(rotation.layout), first_channel_(rotation.first_channel) {
  kernels::CheckTokenRotation(
      rotation, std::max<int64_t>(first_channel_, 0) + rotation.rotary_dim,
      positions);
  if (rotation.heads > 1) {
    Fail(
        "a table of cosines serves all heads, but the rotation has frequencies "
        "of {} heads",
        rotation.heads);
  }
  const int64_t count = static_cast<int64_t>(positions.size());
  const int64_t pairs = rotation.NumPairs();
  cos_ = Tensor::Empty(DType::kF32, {count, pairs});
  sin_ = Tensor::Empty(DType::kF32, {count, pairs});
  const int workers = NumThreads(threads);
  RotationSource(rotation, positions, workers)
      .Floats(positions, cos_.MutableData<float>(), sin_.MutableData<float>(),
              workers);
}

RotaryTable RotaryTable::UpTo(const Rotation& rotation, int64_t length,
                              int threads) {
  if (length < 0) Fail("a table's length must not be negative, got {}", length);
  return {rotation, CountFrom(0, length), threads};
}

RotaryTable::RotaryTable(const Tensor& cos, const Tensor& sin,
                         PairLayout layout, int64_t rotary_dim,
                         int64_t first_channel)
    : layout_(layout), first_channel_(first_channel) {
  kernels::CheckCallerTable(cos, sin, rotary_dim);
  if (first_channel < 0) {
    Fail("the first rotary channel must not be negative, got {}",
         first_channel);
  }
  const int64_t count = cos.size(0), pairs = rotary_dim / 2;
  const TableSource source(cos, sin, pairs, layout);
  for (int64_t row = 0; row < count; ++row) source.CheckTwins(row);
  cos_ = Tensor::Empty(DType::kF32, {count, pairs});
  sin_ = Tensor::Empty(DType::kF32, {count, pairs});
  CosSinScratch scratch = source.NewScratch();
  source.Floats(CountFrom(0, count), scratch, cos_.MutableData<float>(),
                sin_.MutableData<float>());
}

Tensor Rotate(const Tensor& x, const RotaryTable& table,
              const RotateOptions& options) {
  Tensor out = EmptyLike(x);
  RunTable(x, out, table, options, DirectionOf(options.inverse));
  return out;
}

void RotateInPlace(Tensor& x, const RotaryTable& table,
                   const RotateOptions& options) {
  CheckInPlace(x);
  RunTable(x, x, table, options, DirectionOf(options.inverse));
}

Tensor RotateBackward(const Tensor& d_out, const RotaryTable& table,
                      const RotateOptions& options) {
  if (options.inverse) Fail("RotateBackward is of Rotate, not of its inverse");
  Tensor d_x = EmptyLike(d_out);
  RunTable(d_out, d_x, table, options, RotateDirection::kTranspose);
  return d_x;
}

// ----------------------------------------------------------- by given tables

Tensor RotateWith(const Tensor& x, const Tensor& cos, const Tensor& sin,
                  PairLayout layout, const RotateWithOptions& options) {
  CheckRank(x);
  const int64_t rotary_dim =
      options.rotary_dim == 0 ? x.size(3) : options.rotary_dim;
  kernels::CheckCallerTable(cos, sin, rotary_dim);
  if (rotary_dim > x.size(3)) {
    Fail("rotary channels 0 .. {} do not fit a head of {}", rotary_dim - 1,
         x.size(3));
  }
  const std::vector<int64_t> ids =
      TokenIds(x, options.positions, /*first=*/0, "positions");
  CheckRows(ids, cos.size(0));
  const TableSource source(cos, sin, rotary_dim / 2, layout);
  for (int64_t id : ids) source.CheckTwins(id);
  Tensor out = EmptyLike(x);
  RunRotate(CallOf(x, out, layout, /*first_channel=*/0, rotary_dim / 2), source,
            ids, DirectionOf(options.inverse), options.threads);
  return out;
}

}  // namespace locus

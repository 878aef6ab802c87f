// The public functions of rotary.h: checks, and where angles come from.
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

using kernels::CheckGiven;
using kernels::CosSinRows;
using kernels::CosSinSource;
using kernels::RotateCall;
using kernels::TableSource;
using kernels::Turn;

// ------------------------------------------------------------------- sources

// Ids are positions.
class RotationSource final : public CosSinSource {
 public:
  // Floats() is for positions among these.
  RotationSource(const Rotation& rotation, std::span<const int64_t> positions,
                 int threads)
      : rotation_(rotation), rows_(rotation, positions, threads) {}
  void Floats(std::span<const int64_t> ids, float* cos,
              float* sin) const override {
    rows_.Fill(ids, cos, sin);
  }
  void Doubles(int64_t id, double* cos, double* sin) const override {
    rotation_.CosSin(id, cos, sin);
  }

 private:
  const Rotation& rotation_;
  CosSinRows rows_;
};

// -------------------------------------------------------------------- checks

void CheckRank(const Tensor& x) {
  if (x.rank() != 4) {
    Fail("rotation needs x [B, H, L, D], got {}", x.Describe());
  }
}

// The ids of the tokens of x: those given, or first .. first + L - 1.
std::vector<int64_t> TokenIds(const Tensor& x, std::span<const int64_t> given,
                              int64_t first, const char* name) {
  const int64_t length = x.size(2), tokens = x.size(0) * length;
  const int64_t count = static_cast<int64_t>(given.size());
  if (count != 0 && count != length && count != tokens) {
    Fail("{} must number {} or {}, got {}", name, length, tokens, count);
  }
  if (count != 0) return {given.begin(), given.end()};
  std::vector<int64_t> ids(static_cast<size_t>(length));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

void CheckRows(std::span<const int64_t> ids, int64_t rows) {
  for (int64_t id : ids) {
    if (id < 0 || id >= rows) {
      Fail("a token takes row {} of a table that has rows 0 .. {}", id,
           rows - 1);
    }
  }
}

// No two elements at one address: each axis steps over all that is inside it.
// Stricter than needed for some views that nobody makes.
void CheckNoOverlap(const Tensor& x) {
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

// A result like x, in memory of the same order: tokens inside heads, or heads
// inside tokens. Each is then read and written in one stretch.
Tensor EmptyLike(const Tensor& x) {
  const bool heads_inside =
      x.size(1) > 1 && std::abs(x.strides()[1]) < std::abs(x.strides()[2]);
  if (!heads_inside) return Tensor::Empty(x.dtype(), x.shape());
  return Tensor::Empty(x.dtype(), {x.size(0), x.size(2), x.size(1), x.size(3)})
      .Transposed(1, 2);
}

// Which channels of x rotate.
struct Place {
  PairLayout layout;
  int64_t first_channel;
  int64_t pairs;
};

void Run(const Tensor& x, const Tensor& out, const Place& place,
         const CosSinSource& source, std::span<const int64_t> ids, Turn turn,
         int threads) {
  RotateCall call{.from = x.Raw(),
                  .to = const_cast<void*>(out.Raw()),
                  .dtype = x.dtype(),
                  .batch = x.size(0),
                  .heads = x.size(1),
                  .length = x.size(2),
                  .dim = x.size(3),
                  .layout = place.layout,
                  .first_channel = place.first_channel,
                  .pairs = place.pairs};
  std::ranges::copy(x.strides(), call.from_stride.begin());
  std::ranges::copy(out.strides(), call.to_stride.begin());
  kernels::RunRotate(call, source, ids, turn, threads);
}

void RunRotation(const Tensor& x, const Tensor& out, const Rotation& rotation,
                 std::span<const int64_t> positions, Turn turn, int threads) {
  const std::vector<int64_t> ids =
      TokenIds(x, positions, /*first=*/0, "positions");
  kernels::CheckTokenRotation(rotation, x.size(3), ids);
  const Place place{.layout = rotation.layout,
                    .first_channel = rotation.first_channel,
                    .pairs = rotation.NumPairs()};
  const bool floats = x.dtype() != DType::kF64;
  const RotationSource source(rotation, floats ? ids : std::vector<int64_t>(),
                              NumThreads(threads));
  Run(x, out, place, source, ids, turn, threads);
}

void RunTable(const Tensor& x, const Tensor& out, const RotaryTable& table,
              const RotateOptions& options, Turn turn) {
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
    ids.resize(static_cast<size_t>(rows));
    std::iota(ids.begin(), ids.end(), 0);
  } else {
    Fail(
        "a table of {} rows does not fit {} or {} tokens; rows or first_row "
        "would say which of them to take",
        rows, length, tokens);
  }
  CheckRows(ids, rows);
  const TableSource source(table.cos(), table.sin(), pairs, table.layout());
  const Place place{
      .layout = table.layout(), .first_channel = first, .pairs = pairs};
  Run(x, out, place, source, ids, turn, options.threads);
}

Turn TurnOf(bool inverse) { return inverse ? Turn::kInverse : Turn::kForward; }

}  // namespace

// --------------------------------------------------------------- by rotation

Tensor Rotate(const Tensor& x, const Rotation& rotation,
              std::span<const int64_t> positions, bool inverse, int threads) {
  CheckRank(x);
  Tensor out = EmptyLike(x);
  RunRotation(x, out, rotation, positions, TurnOf(inverse), threads);
  return out;
}

void RotateInPlace(Tensor& x, const Rotation& rotation,
                   std::span<const int64_t> positions, bool inverse,
                   int threads) {
  CheckRank(x);
  CheckNoOverlap(x);
  RunRotation(x, x, rotation, positions, TurnOf(inverse), threads);
}

Tensor RotateBackward(const Tensor& d_out, const Rotation& rotation,
                      std::span<const int64_t> positions, int threads) {
  CheckRank(d_out);
  Tensor d_x = EmptyLike(d_out);
  RunRotation(d_out, d_x, rotation, positions, Turn::kTranspose, threads);
  return d_x;
}

// ------------------------------------------------------------------ by table

Tensor Rotate(const Tensor& x, const RotaryTable& table,
              const RotateOptions& options) {
  CheckRank(x);
  Tensor out = EmptyLike(x);
  RunTable(x, out, table, options, TurnOf(options.inverse));
  return out;
}

void RotateInPlace(Tensor& x, const RotaryTable& table,
                   const RotateOptions& options) {
  CheckRank(x);
  CheckNoOverlap(x);
  RunTable(x, x, table, options, TurnOf(options.inverse));
}

Tensor RotateBackward(const Tensor& d_out, const RotaryTable& table,
                      const RotateOptions& options) {
  CheckRank(d_out);
  if (options.inverse) Fail("RotateBackward is of Rotate, not of its inverse");
  Tensor d_x = EmptyLike(d_out);
  RunTable(d_out, d_x, table, options, Turn::kTranspose);
  return d_x;
}

// ----------------------------------------------------------- by given tables

Tensor RotateWith(const Tensor& x, const Tensor& cos, const Tensor& sin,
                  PairLayout layout, const RotateWithOptions& options) {
  CheckRank(x);
  const int64_t rotary_dim =
      options.rotary_dim == 0 ? x.size(3) : options.rotary_dim;
  CheckGiven(cos, sin, rotary_dim);
  if (rotary_dim > x.size(3)) {
    Fail("rotary channels 0 .. {} do not fit a head of {}", rotary_dim - 1,
         x.size(3));
  }
  const std::vector<int64_t> ids =
      TokenIds(x, options.positions, /*first=*/0, "positions");
  CheckRows(ids, cos.size(0));
  const Place place{
      .layout = layout, .first_channel = 0, .pairs = rotary_dim / 2};
  const TableSource source(cos, sin, place.pairs, layout);
  for (int64_t id : ids) source.CheckTwins(id);
  Tensor out = EmptyLike(x);
  Run(x, out, place, source, ids, TurnOf(options.inverse), options.threads);
  return out;
}

}  // namespace locus

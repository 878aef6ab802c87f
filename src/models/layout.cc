// Rewrites weights from one pair layout to the other.
//
//   interleaved channel first + 2p      <->  halves channel first + p
//   interleaved channel first + 2p + 1  <->  halves channel first + p + r / 2
//
// in every head, for p = 0 .. r/2 - 1. q and k are permuted alike, so q.k is
// unchanged, and the rotation of the other layout acts on the same pairs.
#include <cstring>

#include "core/fail.h"
#include "locus/checkpoint.h"

namespace locus::models {
namespace {

// heads * head_dim, after all checks that need no weight.
int64_t RowCount(const HeadRows& rows) {
  const int64_t r = rows.rotary_dim;
  // By subtraction, since the sum of two large numbers could overflow.
  if (rows.heads < 1 || rows.head_dim < 1 || r < 2 || r % 2 != 0 ||
      r > rows.head_dim || rows.first_channel < 0 ||
      rows.first_channel > rows.head_dim - r) {
    Fail("{} heads of {} channels cannot rotate {} from channel {}", rows.heads,
         rows.head_dim, r, rows.first_channel);
  }
  int64_t count = 0;
  if (__builtin_mul_overflow(rows.heads, rows.head_dim, &count)) {
    Fail("{} heads of {} channels are more than a weight can have", rows.heads,
         rows.head_dim);
  }
  return count;
}

}  // namespace

std::vector<int64_t> LayoutPermutation(const HeadRows& rows, PairLayout from,
                                       PairLayout to) {
  const int64_t r = rows.rotary_dim;
  const int64_t count = RowCount(rows);
  const auto channel = [&](PairLayout layout, int64_t p, int64_t second) {
    return rows.first_channel + (layout == PairLayout::kInterleaved
                                     ? 2 * p + second
                                     : p + second * (r / 2));
  };
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t h = 0; h < rows.heads; ++h) {
    const int64_t head = h * rows.head_dim;
    for (int64_t c = 0; c < rows.head_dim; ++c) {
      order[static_cast<size_t>(head + c)] = head + c;
    }
    for (int64_t p = 0; p < r / 2; ++p) {
      for (int64_t second : {0, 1}) {
        order[static_cast<size_t>(head + channel(to, p, second))] =
            head + channel(from, p, second);
      }
    }
  }
  return order;
}

Tensor ConvertLayout(const Tensor& weight, const HeadRows& rows,
                     PairLayout from, PairLayout to) {
  // Checked before the permutation is made, whose size may not be valid.
  const int64_t count = RowCount(rows);
  if ((weight.rank() != 1 && weight.rank() != 2) || weight.size(0) != count) {
    Fail("a projection of {} heads of {} needs {} rows, got {}", rows.heads,
         rows.head_dim, count, weight.Describe());
  }
  const auto order = LayoutPermutation(rows, from, to);
  const Tensor source = weight.To(weight.dtype());
  Tensor result = Tensor::Empty(weight.dtype(), weight.shape());
  const size_t row =
      static_cast<size_t>(weight.NumElements() * DTypeBytes(weight.dtype())) /
      order.size();
  const auto bytes = [](const Tensor& t) -> const std::byte* {
    switch (t.dtype()) {
      case DType::kF32:
        return reinterpret_cast<const std::byte*>(t.Data<float>());
      case DType::kF64:
        return reinterpret_cast<const std::byte*>(t.Data<double>());
      default:
        return reinterpret_cast<const std::byte*>(t.Data<uint16_t>());
    }
  };
  const std::byte* in = bytes(source);
  auto* out = const_cast<std::byte*>(bytes(result));
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(out + i * row, in + static_cast<size_t>(order[i]) * row, row);
  }
  return result;
}

}  // namespace locus::models

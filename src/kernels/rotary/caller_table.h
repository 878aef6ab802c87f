// Tables of cosines and sines provided by the caller: [rows, pairs], or [rows,
// 2 * pairs] with the value of a pair in both of its channels.
#ifndef LOCUS_SRC_KERNELS_ROTARY_CALLER_TABLE_H_
#define LOCUS_SRC_KERNELS_ROTARY_CALLER_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/fail.h"
#include "kernels/rotary/angles.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus::kernels {

inline void CheckCallerTable(const Tensor& cos, const Tensor& sin,
                             int64_t rotary_dim) {
  if (rotary_dim < 0 || rotary_dim % 2 != 0) {
    Fail("rotary_dim must be even, got {}", rotary_dim);
  }
  if (cos.rank() != 2 || cos.shape() != sin.shape() ||
      (cos.size(1) != rotary_dim && cos.size(1) != rotary_dim / 2)) {
    Fail("cos and sin must both be [rows, {}] or [rows, {}], got {} and {}",
         rotary_dim / 2, rotary_dim, cos.Describe(), sin.Describe());
  }
}

// A view of the cos or the sin table.
class CallerTable {
 public:
  CallerTable(const Tensor& table, int64_t pairs, PairLayout layout)
      : table_(table), pairs_(pairs) {
    const bool twice = table.size(1) != pairs;
    if (twice && layout == PairLayout::kInterleaved) step_ = 2;
    if (twice) twin_ = layout == PairLayout::kInterleaved ? 1 : pairs;
  }

  template <typename T>
  void Read(int64_t row, T* out) const {
    if (table_.dtype() != DType::kF32) {
      for (int64_t p = 0; p < pairs_; ++p) {
        out[p] = static_cast<T>(table_.At(row, p * step_));
      }
      return;
    }
    const float* from = table_.Data<float>() + row * table_.strides()[0];
    const int64_t step = step_ * table_.strides()[1];
    if (step == 1) {
      std::copy_n(from, pairs_, out);
    } else {
      for (int64_t p = 0; p < pairs_; ++p) out[p] = from[p * step];
    }
  }

  // Adjacent rows of floats from `row` on; nullptr if they are not adjacent or
  // not f32.
  const float* Packed(int64_t row) const {
    if (table_.dtype() != DType::kF32 || twin_ != 0) return nullptr;
    return table_.IsContiguous() ? table_.Data<float>() + row * pairs_
                                 : nullptr;
  }

  // Throws Error unless both channels of each pair have the same value; they
  // differ if the table has the other layout.
  void CheckTwins(const char* name, int64_t row) const {
    if (twin_ == 0) return;
    for (int64_t p = 0; p < pairs_; ++p) {
      const int64_t column = p * step_;
      const double a = table_.At(row, column),
                   b = table_.At(row, column + twin_);
      if (a == b || (a != a && b != b)) continue;
      Fail(
          "columns {} and {} of {} belong to one pair but differ in row {}: {} "
          "and {}; is it of the other layout?",
          column, column + twin_, name, row, a, b);
    }
  }

 private:
  const Tensor& table_;
  int64_t pairs_;
  int64_t step_ = 1;  // columns between pairs
  int64_t twin_ = 0;  // columns to the second value of a pair, or 0
};

// The caller's tables as a source; ids are rows.
class TableSource final : public CosSinSource {
 public:
  TableSource(const Tensor& cos, const Tensor& sin, int64_t pairs,
              PairLayout layout)
      : cos_(cos, pairs, layout), sin_(sin, pairs, layout), pairs_(pairs) {}
  void Floats(std::span<const int64_t> ids, CosSinScratch& /*scratch*/,
              float* cos, float* sin) const noexcept override {
    for (size_t n = 0; n < ids.size(); ++n) {
      cos_.Read(ids[n], cos + static_cast<int64_t>(n) * pairs_);
      sin_.Read(ids[n], sin + static_cast<int64_t>(n) * pairs_);
    }
  }
  bool Direct(std::span<const int64_t> ids, CosSinView* rows) const override {
    for (size_t n = 1; n < ids.size(); ++n) {
      if (ids[n] != ids[n - 1] + 1) return false;
    }
    *rows = {.cos = cos_.Packed(ids[0]), .sin = sin_.Packed(ids[0])};
    return rows->cos != nullptr && rows->sin != nullptr;
  }
  void Doubles(int64_t id, double* cos, double* sin) const noexcept override {
    cos_.Read(id, cos);
    sin_.Read(id, sin);
  }
  void CheckTwins(int64_t row) const {
    cos_.CheckTwins("cos", row);
    sin_.CheckTwins("sin", row);
  }

 private:
  CallerTable cos_, sin_;
  int64_t pairs_;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_CALLER_TABLE_H_

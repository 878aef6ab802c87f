#include "finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace locus::python {
namespace {

struct Line {
  int64_t count = 1;
  int64_t step = 1;  // positive
};

// Where the elements of a tensor lie: a first element, and axes from the inner
// to the outer that together meet every element once, or few of them twice.
struct Walk {
  int64_t first = 0;
  std::vector<Line> lines;
};

Walk WalkOf(const Tensor& x) {
  Walk walk;
  std::vector<Line> axes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int64_t step = x.strides()[static_cast<size_t>(axis)];
    const int64_t count = x.size(axis);
    if (count == 1 || step == 0) continue;
    // Backwards is forwards from the other end.
    if (step < 0) walk.first += (count - 1) * step;
    axes.push_back({.count = count, .step = std::abs(step)});
  }
  std::sort(axes.begin(), axes.end(),
            [](const Line& a, const Line& b) { return a.step < b.step; });
  for (const Line& axis : axes) {
    // Lines that begin within one another, or where one ends, are one line.
    if (!walk.lines.empty()) {
      Line& last = walk.lines.back();
      if (axis.step % last.step == 0 && axis.step / last.step <= last.count) {
        last.count += (axis.count - 1) * (axis.step / last.step);
        continue;
      }
    }
    walk.lines.push_back(axis);
  }
  if (walk.lines.empty()) walk.lines.push_back({});
  return walk;
}

// Whether no exponent is the largest, which NaN and infinity have. Compared as
// words: compilers put that into vectors.
template <typename Word, typename T>
bool AllBelow(Word exponent, const T* values, Line line) {
  Word found = 0;
  const auto look = [&](T value) {
    found |=
        static_cast<Word>((std::bit_cast<Word>(value) & exponent) == exponent);
  };
  if (line.step == 1) {
    for (int64_t n = 0; n < line.count; ++n) look(values[n]);
  } else {
    for (int64_t n = 0; n < line.count; ++n) look(values[n * line.step]);
  }
  return found == 0;
}

bool AllFinite(const Tensor& x, int64_t at, Line line) {
  switch (x.dtype()) {
    case DType::kF64:
      return AllBelow(uint64_t{0x7FF} << 52, x.Data<double>() + at, line);
    case DType::kF32:
      return AllBelow(uint32_t{0xFF} << 23, x.Data<float>() + at, line);
    case DType::kBF16:
      return AllBelow(uint16_t{0x7F80}, x.Data<uint16_t>() + at, line);
    case DType::kF16:
      return AllBelow(uint16_t{0x7C00}, x.Data<uint16_t>() + at, line);
    case DType::kI8:
      return true;
  }
  return true;
}

// Of the axes up to `depth`, from element `at` on.
std::optional<double> Search(const Tensor& x, const Walk& walk, size_t depth,
                             int64_t at) {
  const Line line = walk.lines[depth];
  if (depth > 0) {
    for (int64_t n = 0; n < line.count; ++n) {
      if (const auto found = Search(x, walk, depth - 1, at + n * line.step)) {
        return found;
      }
    }
    return std::nullopt;
  }
  if (AllFinite(x, at, line)) return std::nullopt;
  // All of its memory as one row, to read single elements.
  const Tensor row = Tensor::Borrow(x.dtype(), {1}, {1}, x.Raw());
  for (int64_t n = 0; n < line.count; ++n) {
    const double value = row.At(at + n * line.step);
    if (!std::isfinite(value)) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> NotFinite(const Tensor& x) {
  if (x.NumElements() == 0) return std::nullopt;
  const Walk walk = WalkOf(x);
  return Search(x, walk, walk.lines.size() - 1, walk.first);
}

}  // namespace locus::python

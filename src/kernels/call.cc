#include "kernels/call.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/cos_sin.h"

namespace locus::kernels {
namespace {

float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Branch-free half to float: shift the fields into place and let a multiply fix
// the exponent bias, subnormals included. Infinities and NaNs are patched.
float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFU) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  uint32_t out = std::bit_cast<uint32_t>(scaled);
  if (magnitude >= 0x0F800000U) out = magnitude | 0x70000000U;
  return std::bit_cast<float>(out | sign);
}

uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 64U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// Rounds to nearest, ties to even.
uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (value != value) return static_cast<uint16_t>(sign | 0x7E00U);
  // From 65520 on it rounds to infinity.
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the last place is 2^-24, that of 0.5 in float: adding 0.5
    // rounds there.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    magnitude = std::bit_cast<uint32_t>(rounded) - 0x3F000000U;
    return static_cast<uint16_t>(sign | magnitude);
  }
  // 13 bits fewer, and an exponent that counts from 15 instead of 127.
  magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U) >> 13));
}

template <typename Convert>
void LoadNarrow(const void* data, int64_t stride, int64_t dim, float* dst,
                const Convert& convert) {
  const auto* src = static_cast<const uint16_t*>(data);
  for (int64_t d = 0; d < dim; ++d) dst[d] = convert(src[d * stride]);
}

// Tokens whose positions are their indices.
Tokens CountTokens(int64_t count) {
  Tokens t;
  t.source.resize(static_cast<size_t>(count));
  std::iota(t.source.begin(), t.source.end(), 0);
  t.position = t.source;
  return t;
}

Tokens SortTokens(int64_t count, const auto& position, const auto& segment,
                  bool segmented) {
  Tokens t = CountTokens(count);
  std::ranges::transform(t.source, t.position.begin(), position);
  if (segmented) {
    t.segment.resize(t.source.size());
    std::ranges::transform(t.source, t.segment.begin(), segment);
  }
  const auto key = [&](int64_t i) {
    return std::pair(segmented ? segment(i) : 0, position(i));
  };
  const bool sorted = segmented ? std::ranges::is_sorted(t.source, {}, key)
                                : std::ranges::is_sorted(t.position);
  if (sorted) return t;
  t.in_order = false;
  std::ranges::stable_sort(t.source, {}, key);
  std::ranges::transform(t.source, t.position.begin(), position);
  if (segmented) std::ranges::transform(t.source, t.segment.begin(), segment);
  return t;
}

// Runs of the positions as the bucket maps see them: respaced on a grid, and
// with a special token apart. `counted`: positions count up by one.
void FindRuns(Tokens& t, const Terms& terms, bool counted) {
  const BucketMap* map = nullptr;
  if (terms.bias && std::holds_alternative<BiasTable>(*terms.bias)) {
    map = &std::get<BiasTable>(*terms.bias).buckets;
  }
  const bool respaced = map != nullptr && map->grid;
  const int64_t special = map != nullptr && map->special
                              ? map->special->position
                              : std::numeric_limits<int64_t>::min();
  const std::vector<int64_t>& p = t.position;
  const bool plain =
      !respaced && t.segment.empty() && (map == nullptr || !map->special);
  if (plain && counted && !p.empty()) {
    t.runs.push_back({.first = 0, .count = t.size()});
    return;
  }
  const auto joins = [&](size_t at) {
    if (p[at] != p[at - 1] + 1) return false;
    if (plain) return true;
    if (p[at] == special || p[at - 1] == special) return false;
    if (!t.segment.empty() && t.segment[at] != t.segment[at - 1]) return false;
    return !respaced || map->Respace(p[at]) == map->Respace(p[at - 1]) + 1;
  };
  for (size_t first = 0; first < p.size();) {
    size_t end = first + 1;
    while (end < p.size() && joins(end)) ++end;
    t.runs.push_back({.first = static_cast<int64_t>(first),
                      .count = static_cast<int64_t>(end - first)});
    first = end;
  }
}

}  // namespace

Rows::Rows(const Tensor& t)
    : data_(t.Raw()), dtype_(t.dtype()), dim_(t.size(3)) {
  for (int a = 0; a < 4; ++a) stride_[a] = t.strides()[static_cast<size_t>(a)];
}

void Rows::Load(int64_t b, int64_t h, int64_t i, float* dst) const {
  const int64_t at = b * stride_[0] + h * stride_[1] + i * stride_[2];
  const int64_t step = stride_[3];
  switch (dtype_) {
    case DType::kF32: {
      const float* src = static_cast<const float*>(data_) + at;
      if (step == 1) {
        std::memcpy(dst, src, static_cast<size_t>(dim_) * sizeof(float));
      } else {
        for (int64_t d = 0; d < dim_; ++d) dst[d] = src[d * step];
      }
      break;
    }
    case DType::kF64: {
      const double* src = static_cast<const double*>(data_) + at;
      for (int64_t d = 0; d < dim_; ++d) {
        dst[d] = static_cast<float>(src[d * step]);
      }
      break;
    }
    case DType::kBF16:
      LoadNarrow(static_cast<const uint16_t*>(data_) + at, step, dim_, dst,
                 FromBF16);
      break;
    case DType::kF16:
      LoadNarrow(static_cast<const uint16_t*>(data_) + at, step, dim_, dst,
                 FromF16);
      break;
  }
}

void StoreFloats(const float* src, int64_t count, DType dtype, void* dst) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::kF64:
      std::copy_n(src, count, static_cast<double*>(dst));
      break;
    case DType::kBF16:
      std::transform(src, src + count, static_cast<uint16_t*>(dst), ToBF16);
      break;
    case DType::kF16:
      std::transform(src, src + count, static_cast<uint16_t*>(dst), ToF16);
      break;
  }
}

void StoreRow(Tensor& t, int64_t row, const float* src, int64_t dim) {
  const int64_t at = row * dim;
  switch (t.dtype()) {
    case DType::kF32:
      StoreFloats(src, dim, t.dtype(), t.MutableData<float>() + at);
      break;
    case DType::kF64:
      StoreFloats(src, dim, t.dtype(), t.MutableData<double>() + at);
      break;
    default:
      StoreFloats(src, dim, t.dtype(), t.MutableData<uint16_t>() + at);
  }
}

namespace {

// As Tensor::Empty, but in one piece of memory from the plain allocator, which
// is quicker than the aligned one where there is little to write: short calls
// feel it. `strides` are those of dense rows.
Tensor NewSmall(DType dtype, int64_t elements, std::vector<int64_t> shape,
                std::vector<int64_t> strides) {
  constexpr size_t kLine = 64;  // where it begins
  const int64_t bytes = elements * DTypeBytes(dtype);
  auto storage = std::make_shared_for_overwrite<std::byte[]>(
      static_cast<size_t>(bytes) + kLine);
  const auto at = reinterpret_cast<uintptr_t>(storage.get());
  const void* data = storage.get() + (kLine - at % kLine);
  return Tensor::Borrow(dtype, std::move(shape), std::move(strides), data,
                        std::move(storage));
}

AttentionResult NewLarge(const CallSizes& s, DType dtype, bool with_lse) {
  return {
      .out = Tensor::Empty(dtype, {s.batch, s.q_heads, s.q_len, s.value_dim}),
      .lse = with_lse
                 ? Tensor::Empty(DType::kF32, {s.batch, s.q_heads, s.q_len})
                 : Tensor()};
}

}  // namespace

AttentionResult NewResult(const CallSizes& s, DType dtype, bool with_lse) {
  // 64 KiB of floats. Sizes may be anything here: their product is no int64.
  constexpr double kSmall = 16384.0;
  const double elements =
      static_cast<double>(s.batch) * static_cast<double>(s.q_heads) *
      static_cast<double>(s.q_len) * static_cast<double>(s.value_dim);
  if (elements > kSmall || elements == 0.0) {
    return NewLarge(s, dtype, with_lse);
  }
  const int64_t head = s.q_len * s.value_dim;
  const int64_t rows = s.batch * s.q_heads * s.q_len;
  AttentionResult small{.out =
                            NewSmall(dtype, rows * s.value_dim,
                                     {s.batch, s.q_heads, s.q_len, s.value_dim},
                                     {s.q_heads * head, head, s.value_dim, 1})};
  if (with_lse) {
    small.lse = NewSmall(DType::kF32, rows, {s.batch, s.q_heads, s.q_len},
                         {s.q_heads * s.q_len, s.q_len, 1});
  }
  return small;
}

int ThreadsFor(const CallSizes& s, int requested) {
  // A thread must have some tens of microseconds of multiply-adds to be worth
  // waking.
  constexpr double kWorthAThread = 2e6;
  const int threads = NumThreads(requested);
  if (threads == 1) return 1;
  const double work = static_cast<double>(s.batch * s.q_heads) *
                      static_cast<double>(s.q_len * s.k_len) *
                      static_cast<double>(s.head_dim + s.value_dim);
  return static_cast<int>(
      std::clamp(work / kWorthAThread, 1.0, static_cast<double>(threads)));
}

Call::Call(const Tensor& q_tensor, const Tensor& k_tensor,
           const Tensor& v_tensor, const Terms& call_terms,
           const AttentionOptions& options)
    : sizes(CheckCall(q_tensor, k_tensor, v_tensor, options)),
      terms(call_terms),
      q(q_tensor),
      k(k_tensor),
      v(v_tensor),
      softcap(static_cast<float>(options.softcap)),
      causal(options.causal),
      window(options.window) {
  const CallMask mask(sizes, options);
  shape = mask.ShapeOf(sizes, options);
  Validate(terms, shape);
  if (terms.v_table && terms.v_table->rows.size(2) != sizes.value_dim) {
    Fail("the value table {} does not match v {}",
         terms.v_table->rows.Describe(), v_tensor.Describe());
  }
  const auto per_sequence = [&](std::span<const int64_t> span, int64_t length) {
    return sizes.batch > 1 && static_cast<int64_t>(span.size()) > length;
  };
  shared = options.key_lengths.empty() &&
           !per_sequence(options.q_positions, sizes.q_len) &&
           !per_sequence(options.k_positions, sizes.k_len) &&
           !per_sequence(options.q_segments, sizes.q_len) &&
           !per_sequence(options.k_segments, sizes.k_len);
  const auto segment_of = [](std::span<const int64_t> span, int64_t length,
                             int64_t b, int64_t i) {
    const int64_t step =
        static_cast<int64_t>(span.size()) == length ? 0 : length;
    return span[static_cast<size_t>(b * step + i)];
  };
  const bool segmented = !options.q_segments.empty();
  for (int64_t b = 0; b < (shared ? 1 : sizes.batch); ++b) {
    queries.push_back(SortTokens(
        sizes.q_len, [&](int64_t i) { return mask.QPos(b, i); },
        [&](int64_t i) {
          return segment_of(options.q_segments, sizes.q_len, b, i);
        },
        segmented));
    const int64_t present = options.key_lengths.empty()
                                ? sizes.k_len
                                : options.key_lengths[static_cast<size_t>(b)];
    const bool counted = options.k_positions.empty() && !segmented;
    if (counted) {
      keys.push_back(CountTokens(present));
    } else {
      keys.push_back(SortTokens(
          present, [&](int64_t j) { return mask.KPos(b, j); },
          [&](int64_t j) {
            return segment_of(options.k_segments, sizes.k_len, b, j);
          },
          segmented));
    }
    FindRuns(queries.back(), terms, options.q_positions.empty() && !segmented);
    FindRuns(keys.back(), terms, counted);
    std::vector<Interval>& seen = sees.emplace_back();
    for (int64_t i = 0; i < sizes.q_len; ++i) {
      seen.push_back(FindInterval(queries.back(), keys.back(), i));
    }
  }
}

size_t Tokens::RunOf(int64_t i) const {
  const auto after = std::ranges::upper_bound(runs, i, {}, &Run::first);
  return static_cast<size_t>(after - runs.begin()) - 1;
}

Interval Call::FindInterval(const Tokens& qs, const Tokens& ks,
                            int64_t i) const {
  const int64_t m = qs.position[static_cast<size_t>(i)];
  auto begin = ks.position.begin();
  auto end = ks.position.end();
  if (!qs.segment.empty()) {
    const auto range = std::equal_range(ks.segment.begin(), ks.segment.end(),
                                        qs.segment[static_cast<size_t>(i)]);
    begin += range.first - ks.segment.begin();
    end = ks.position.begin() + (range.second - ks.segment.begin());
  }
  Interval seen{begin - ks.position.begin(), end - ks.position.begin()};
  if (causal || window) {
    int64_t ahead = window ? window->right : BucketMap::kHighest;
    if (causal) ahead = 0;
    seen.end = std::upper_bound(begin, end, m + ahead) - ks.position.begin();
  }
  if (window) {
    seen.begin =
        std::lower_bound(begin, end, m - window->left) - ks.position.begin();
  }
  if (seen.begin > seen.end) seen.begin = seen.end;
  return seen;
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

RotationTable::RotationTable(const Rotation& r, const Tokens& tokens,
                             double sign, int64_t origin, int threads) {
  const int64_t pairs = r.NumPairs();
  const int64_t count = tokens.size();
  cos.resize(static_cast<size_t>(count * pairs));
  sin.resize(cos.size());
  const CosSinRows rows(r, tokens.position, threads);
  // The split depends on the lengths alone.
  constexpr int64_t kTokensPerTask = 256;
  ParallelFor(
      (count + kTokensPerTask - 1) / kTokensPerTask, threads, [&](int64_t n) {
        const int64_t first = n * kTokensPerTask;
        const int64_t some = std::min(kTokensPerTask, count - first);
        float* c = cos.data() + first * pairs;
        float* s = sin.data() + first * pairs;
        rows.Fill(
            std::span(tokens.position)
                .subspan(static_cast<size_t>(first), static_cast<size_t>(some)),
            c, s);
        if (r.log_decay.empty()) return;
        for (int64_t i = 0; i < some; ++i) {
          const double steps = static_cast<double>(
              tokens.position[static_cast<size_t>(first + i)] - origin);
          for (int64_t p = 0; p < pairs; ++p) {
            const auto gain = static_cast<float>(
                std::exp(sign * r.log_decay[static_cast<size_t>(p)] * steps));
            c[i * pairs + p] *= gain;
            s[i * pairs + p] *= gain;
          }
        }
      });
}

namespace {

template <bool kBack>
void TurnRow(const Rotation& r, const RotationTable& table, int64_t i,
             float* x) {
  const int64_t pairs = r.NumPairs();
  const float* cos = table.cos.data() + i * pairs;
  const float* sin = table.sin.data() + i * pairs;
  x += r.first_channel;
  if (r.layout == PairLayout::kHalves) {
    float* x0 = x;
    float* x1 = x + pairs;
    for (int64_t p = 0; p < pairs; ++p) {
      const float s = kBack ? -sin[p] : sin[p];
      const float a = x0[p], b = x1[p];
      x0[p] = a * cos[p] - b * s;
      x1[p] = a * s + b * cos[p];
    }
  } else {
    for (int64_t p = 0; p < pairs; ++p) {
      const float s = kBack ? -sin[p] : sin[p];
      const float a = x[2 * p], b = x[2 * p + 1];
      x[2 * p] = a * cos[p] - b * s;
      x[2 * p + 1] = a * s + b * cos[p];
    }
  }
}

}  // namespace

void RotateRow(const Rotation& rotation, const RotationTable& table, int64_t i,
               float* x) {
  TurnRow<false>(rotation, table, i, x);
}

void RotateRowBack(const Rotation& rotation, const RotationTable& table,
                   int64_t i, float* x) {
  TurnRow<true>(rotation, table, i, x);
}

RelMap::RelMap(const BucketMap& map, const Shape& shape) {
  // Offsets below the second piece, or from the last one on, are all alike.
  int64_t lo = map.min_offset;
  int64_t hi = map.max_offset;
  if (!map.grid) {
    lo = std::max(lo, shape.min_offset);
    hi = std::min(hi, shape.max_offset);
  }
  if (map.pieces.size() > 1 && map.pieces.front().step == 0) {
    lo = std::max(lo, map.pieces[1].start - 1);
  }
  if (map.pieces.back().step == 0 && map.pieces.size() > 1) {
    hi = std::min(hi, map.pieces.back().start);
  }
  if (map.pieces.size() == 1 && map.pieces[0].step == 0) lo = hi = 0;
  // The whole call may lie beyond one end.
  if (lo > hi) {
    if (shape.min_offset >= hi) {
      lo = hi;
    } else {
      hi = lo;
    }
  }
  first = -hi;
  for (int64_t offset = hi; offset >= lo; --offset) {
    bucket.push_back(map.OfOffset(offset));
  }
  same_until.assign(bucket.size(), width());
  for (size_t e = bucket.size() - 1; e-- > 0;) {
    same_until[e] = bucket[e] == bucket[e + 1] ? same_until[e + 1]
                                               : static_cast<int64_t>(e) + 1;
  }
}

}  // namespace locus::kernels

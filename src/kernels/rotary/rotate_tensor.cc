#include "kernels/rotary/rotate_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotate_tensor.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include <hwy/cache_control.h>

#include "kernels/rotary/rotate_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::CosSinView;
using kernels::RotateBlock;
using kernels::RotateCall;
using kernels::TableForm;

// Whether to use non-temporal stores: for a result too large to stay in cache,
// ordinary stores would first read each cache line. Needs large f32 arrays,
// with all channels rotated in whole aligned vectors.
bool StoresPastCaches(const RotateCall& call) {
  constexpr int64_t kLargeFloats = int64_t{2} << 20;  // 8 MiB
  constexpr int64_t kLanes = HWY_LANES(float);
  const auto& stride = call.to_stride;
  return call.dtype == DType::kF32 && call.from != call.to &&
         call.batch * call.heads * call.length * call.dim >= kLargeFloats &&
         2 * call.pairs == call.dim && call.pairs % kLanes == 0 &&
         stride[0] % kLanes == 0 && stride[1] % kLanes == 0 &&
         stride[2] % kLanes == 0 && stride[3] == 1 &&
         call.from_stride[3] == 1 &&
         reinterpret_cast<uintptr_t>(call.to) % (4 * kLanes) == 0;
}

// The fastest form for a call. Tables too long for L1 are kept as short as
// possible.
TableForm FormOf(const RotateCall& call, bool long_tables) {
  if (StoresPastCaches(call)) return TableForm::kStreamed;
  const bool halves = call.layout == PairLayout::kHalves;
  if (call.dtype == DType::kBF16) {
    return halves ? TableForm::kParts : TableForm::kPlain;
  }
  if (halves || (long_tables && call.dtype == DType::kF32)) {
    return TableForm::kPlain;
  }
  return TableForm::kSwapped;
}

// Converts cos and sin [rows, pairs] to kParts or kSwapped. The outputs have
// room for twice as many floats; kParts may be converted in place.
void MakeTables(TableForm form, CosSinView from, int64_t rows, int64_t pairs,
                float* cos, float* sin) {
  const hn::ScalableTag<float> d;
  if (form == TableForm::kParts) {
    for (int64_t at = 0; at < rows * pairs; at += pairs) {
      ToPartOrder(d, from.cos + at, pairs, cos + at);
      ToPartOrder(d, from.sin + at, pairs, sin + at);
    }
    return;
  }
  const auto swap = [&](auto tag, int64_t n) HWY_ATTR {
    const int64_t step = static_cast<int64_t>(hn::Lanes(tag));
    for (; n + step <= rows * pairs; n += step) {
      const auto c = hn::LoadU(tag, from.cos + n);
      const auto s = hn::LoadU(tag, from.sin + n);
      hn::StoreInterleaved2(c, c, tag, cos + 2 * n);
      hn::StoreInterleaved2(hn::Neg(s), s, tag, sin + 2 * n);
    }
    return n;
  };
  swap(hn::CappedTag<float, 1>(), swap(d, 0));
}

// Copies channels [begin, end) of a row.
template <typename T>
HWY_INLINE void CopyChannels(const T* x, int64_t x_step, int64_t begin,
                             int64_t end, T* y, int64_t y_step) {
  if (x_step == 1 && y_step == 1) {
    std::copy(x + begin, x + end, y + begin);
  } else {
    for (int64_t d = begin; d < end; ++d) y[d * y_step] = x[d * x_step];
  }
}

// How many rows ahead are prefetched: 4 KiB at D = 128 in float32. The hardware
// prefetches within a page by itself, but the rows of the next head are in
// another one.
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kLine = 64;

template <typename T>
HWY_INLINE void PrefetchRow(const T* row, int64_t count) {
  const char* from = reinterpret_cast<const char*>(row);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  for (int64_t at = 0; at < bytes; at += kLine) hwy::Prefetch(from + at);
}

// Rotates the tokens of a block in its heads, with tables in form kForm.
// Meanwhile prefetches the rows [tokens, pairs] of the next block, if `after`
// is set.
template <typename T, PairLayout kLayout, TableForm kForm>
void RotateRows(const RotateCall& call, const RotateBlock& block,
                CosSinView tables, CosSinView after) {
  const int64_t pairs = call.pairs, count = 2 * pairs;
  const int64_t first = call.first_channel, dim = call.dim;
  const int64_t tokens = block.end - block.begin;
  const int64_t heads = block.end_head - block.first_head;
  const int64_t x_step = call.from_stride[3], y_step = call.to_stride[3];
  const bool dense = x_step == 1 && y_step == 1;
  std::vector<T> packed(dense ? 0 : static_cast<size_t>(count));
  // Follows the memory order: tokens inside heads, or heads inside tokens.
  const bool heads_inside =
      std::abs(call.to_stride[1]) < std::abs(call.to_stride[2]);
  const size_t in = heads_inside ? 1 : 2, out = heads_inside ? 2 : 1;
  const int64_t inner = heads_inside ? heads : tokens;
  const int64_t outer = heads_inside ? tokens : heads;
  const int64_t rows_ahead = std::min(kRowsAhead, inner);
  const int64_t row = kForm == TableForm::kSwapped ? count : pairs;
  const int64_t t_in = heads_inside ? 0 : row, t_out = heads_inside ? row : 0;
  const int64_t x_in = call.from_stride[in], x_out = call.from_stride[out];
  const int64_t y_in = call.to_stride[in], y_out = call.to_stride[out];
  const auto rotate = [pairs](const T* x, const float* c, const float* s,
                              T* y) HWY_ATTR {
    if constexpr (kForm == TableForm::kStreamed) {
      RotateChannels<kLayout>(x, c, s, 0, pairs, Streamed{y});
    } else if constexpr (kForm == TableForm::kParts) {
      RotateParts(x, c, s, pairs, y);
    } else if constexpr (kForm == TableForm::kSwapped) {
      RotateSwapped(x, c, s, pairs, y);
    } else {
      RotateChannels<kLayout>(x, c, s, 0, pairs, y);
    }
  };
  for (int64_t b = block.first_batch; b < block.end_batch; ++b) {
    for (int64_t o = 0; o < outer; ++o) {
      const T* x = static_cast<const T*>(call.from) + b * call.from_stride[0] +
                   block.first_head * call.from_stride[1] +
                   block.begin * call.from_stride[2] + o * x_out;
      T* y = static_cast<T*>(call.to) + b * call.to_stride[0] +
             block.first_head * call.to_stride[1] +
             block.begin * call.to_stride[2] + o * y_out;
      const float* c = tables.cos + o * t_out;
      const float* s = tables.sin + o * t_out;
      for (int64_t n = 0; n < inner; ++n) {
        const int64_t ahead = n + rows_ahead < inner
                                  ? rows_ahead * x_in
                                  : x_out + (rows_ahead - inner) * x_in;
        PrefetchRow(x + first + ahead, count);
        if (after.cos != nullptr && (heads_inside ? n : o) == 0) {
          const int64_t token = heads_inside ? o : n;
          PrefetchRow(after.cos + token * pairs, pairs);
          PrefetchRow(after.sin + token * pairs, pairs);
        }
        if (x != y) {
          CopyChannels(x, x_step, 0, first, y, y_step);
          CopyChannels(x, x_step, first + count, dim, y, y_step);
        }
        if (dense) {
          rotate(x + first, c, s, y + first);
        } else {
          CopyChannels(x + first * x_step, x_step, 0, count, packed.data(), 1);
          rotate(packed.data(), c, s, packed.data());
          CopyChannels(packed.data(), 1, 0, count, y + first * y_step, y_step);
        }
        x += x_in;
        y += y_in;
        c += t_in;
        s += t_in;
      }
    }
  }
}

// With tables in the form that FormOf returned.
template <typename T, PairLayout kLayout>
void RotateAs(const RotateCall& call, const RotateBlock& block, TableForm form,
              CosSinView tables, CosSinView after) {
  constexpr bool kBF16 = std::is_same_v<T, hwy::bfloat16_t>;
  constexpr TableForm kHalves = kBF16 ? TableForm::kParts : TableForm::kPlain;
  constexpr TableForm kPairs = kBF16 ? TableForm::kPlain : TableForm::kSwapped;
  constexpr TableForm kUsual =
      kLayout == PairLayout::kHalves ? kHalves : kPairs;
  if constexpr (std::is_same_v<T, float>) {
    if (form == TableForm::kStreamed) {
      RotateRows<T, kLayout, TableForm::kStreamed>(call, block, tables, after);
      return hwy::FlushStream();
    }
    if (form == TableForm::kPlain) {
      return RotateRows<T, kLayout, TableForm::kPlain>(call, block, tables,
                                                       after);
    }
  }
  RotateRows<T, kLayout, kUsual>(call, block, tables, after);
}

void RotateAny(const RotateCall& call, const RotateBlock& block, TableForm form,
               CosSinView tables, CosSinView after) {
  WithType(call.dtype, [&]<typename T>() {
    if (call.layout == PairLayout::kHalves) {
      RotateAs<T, PairLayout::kHalves>(call, block, form, tables, after);
    } else {
      RotateAs<T, PairLayout::kInterleaved>(call, block, form, tables, after);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(FormOf);
HWY_EXPORT(MakeTables);
HWY_EXPORT(RotateAny);

namespace kernels {
namespace {

template <typename T>
void Apply(RotateDirection direction, int64_t count, T* cos, T* sin) {
  if (direction == RotateDirection::kForward) return;
  for (int64_t n = 0; n < count; ++n) {
    const double c = static_cast<double>(cos[n]);
    const double s = static_cast<double>(sin[n]);
    const double square =
        direction == RotateDirection::kInverse ? c * c + s * s : 1.0;
    cos[n] = static_cast<T>(c / square);
    sin[n] = static_cast<T>(-s / square);
  }
}

// The caller's own tables, if they need no computation for the direction.
bool Direct(const CosSinSource& source, std::span<const int64_t> ids,
            RotateDirection direction, CosSinView* rows) {
  return direction == RotateDirection::kForward && source.Direct(ids, rows);
}

bool IsPlain(TableForm form) {
  return form == TableForm::kPlain || form == TableForm::kStreamed;
}

// Floats of cos and sin for a group of tokens that is rotated in all heads
// before the next: 8 KiB, or twice that for RotateSwapped. The tables stay in
// L1 while every head streams past them, and a head's part of the group, 4 KiB
// or more, is long enough to stream: doubling it changes nothing.
constexpr int64_t kStreamFloats = 2048;

// Rounds up to whole cache lines, for several arrays in one buffer.
constexpr int64_t RoundToLine(int64_t floats) {
  constexpr int64_t kLineFloats = 16;
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// Tokens of such a group.
int64_t StreamTokens(int64_t pairs) {
  return std::max<int64_t>(kStreamFloats / std::max<int64_t>(2 * pairs, 1), 1);
}

// Memory of a worker for blocks of up to `tokens` tokens.
struct RotateScratch {
  RotateScratch(const RotateCall& call, const CosSinSource& from,
                int64_t tokens)
      : source(from.NewScratch()) {
    if (call.dtype == DType::kF64) {
      doubles.resize(static_cast<size_t>(2 * call.pairs));
    } else {
      floats.Resize(2 * RoundToLine(tokens * call.pairs) +
                    4 * StreamTokens(call.pairs) * call.pairs);
    }
  }
  CosSinScratch source;
  FloatBuffer floats;
  std::vector<double> doubles;
};

void RotateFloats(const RotateCall& call, const CosSinSource& source,
                  std::span<const int64_t> ids, RotateDirection direction,
                  const RotateBlock& block, RotateScratch& scratch) noexcept {
  const int64_t pairs = call.pairs;
  const int64_t count = static_cast<int64_t>(ids.size()) * pairs;
  const int64_t step = std::min(StreamTokens(pairs), block.end);
  const int64_t room = RoundToLine(count);
  const TableForm form = HWY_DYNAMIC_DISPATCH(FormOf)(call, false);
  CosSinView rows;
  const bool direct = Direct(source, ids, direction, &rows);
  if (!direct) {
    float* cos = scratch.floats.data();
    float* sin = cos + room;
    source.Floats(ids, scratch.source, cos, sin);
    Apply(direction, count, cos, sin);
    rows = {.cos = cos, .sin = sin};
  }
  RotateBlock part = block;
  while (part.begin < block.end) {
    part.end = std::min(part.begin + step, block.end);
    const int64_t tokens = part.end - part.begin;
    CosSinView tables = rows;
    if (!IsPlain(form)) {
      float* cos = scratch.floats.data() + 2 * room;
      float* sin = cos + 2 * tokens * pairs;
      HWY_DYNAMIC_DISPATCH(MakeTables)(form, rows, tokens, pairs, cos, sin);
      tables = {.cos = cos, .sin = sin};
    }
    rows = rows + tokens * pairs;
    // The last part of a block prefetches as well: the rows that the next task
    // reads first. Past the end of a table this has no effect.
    HWY_DYNAMIC_DISPATCH(RotateAny)
    (call, part, form, tables, direct ? rows : CosSinView());
    part.begin = part.end;
  }
}

void RotateDoubles(const RotateCall& call, const CosSinSource& source,
                   std::span<const int64_t> ids, RotateDirection direction,
                   const RotateBlock& block, RotateScratch& scratch) noexcept {
  const Rotation place{.layout = call.layout,
                       .rotary_dim = 2 * call.pairs,
                       .first_channel = call.first_channel};
  double* cos = scratch.doubles.data();
  double* sin = cos + call.pairs;
  const auto& sx = call.from_stride;
  const auto& sy = call.to_stride;
  for (int64_t i = block.begin; i < block.end; ++i) {
    source.Doubles(ids[static_cast<size_t>(i - block.begin)], cos, sin);
    Apply(direction, call.pairs, cos, sin);
    for (int64_t b = block.first_batch; b < block.end_batch; ++b) {
      for (int64_t h = 0; h < call.heads; ++h) {
        const double* x = static_cast<const double*>(call.from) + b * sx[0] +
                          h * sx[1] + i * sx[2];
        double* y =
            static_cast<double*>(call.to) + b * sy[0] + h * sy[1] + i * sy[2];
        for (int64_t d = 0; x != y && d < call.dim; ++d) {
          y[d * sy[3]] = x[d * sx[3]];
        }
        for (int64_t p = 0; p < call.pairs; ++p) {
          double& u = y[place.FirstOfPair(p) * sy[3]];
          double& v = y[place.SecondOfPair(p) * sy[3]];
          const double c = cos[p], s = sin[p];
          const double rotated = c * u - s * v;
          v = s * u + c * v;
          u = rotated;
        }
      }
    }
  }
}

// Most tokens per task: as many as share one evaluation of angles, see
// angles.h.
constexpr int64_t kTaskTokens = 64;
// Waking a thread takes about as long as rotating this many numbers.
constexpr int64_t kFewNumbers = int64_t{64} << 10;

// If heads are long contiguous ranges, each is processed for as many tokens as
// this many floats of tables cover: 1 MiB of cos and sin, shared by the threads
// and mostly held in L2. If the distance of heads is a power of two, switching
// heads every 8 KiB halves the memory throughput (Zen 4); doubling the length
// gains little.
constexpr int64_t kLongFloats = int64_t{256} << 10;

bool HeadsAreLong(const RotateCall& call) {
  // Interleaved f16 supports only tables of twice the length.
  const bool swapped =
      call.dtype == DType::kF16 && call.layout == PairLayout::kInterleaved;
  return call.dtype != DType::kF64 && !swapped &&
         std::abs(call.to_stride[1]) >= std::abs(call.to_stride[2]) &&
         2 * call.length * call.pairs >= kLongFloats / 2;
}

// Tokens per step, and tokens whose tables are computed at once: several steps.
int64_t StepTokens(const RotateCall& call) {
  return std::max<int64_t>(kLongFloats / (2 * call.pairs), 1);
}
int64_t TableTokens(const RotateCall& call) {
  constexpr int64_t kStepsAtOnce = 8;
  return std::min(call.length, kStepsAtOnce * StepTokens(call));
}

// Rotates sequences [first_batch, end_batch), which share `ids` [L]. `buffer`
// has room for the tables of TableTokens; `workers` has one scratch per thread.
void RotateHeads(const RotateCall& call, const CosSinSource& source,
                 std::span<const int64_t> ids, RotateDirection direction,
                 RotateBlock block, std::span<CosSinScratch> workers,
                 FloatBuffer& buffer) {
  const int threads = static_cast<int>(workers.size());
  const int64_t pairs = call.pairs, step = StepTokens(call);
  const TableForm form = HWY_DYNAMIC_DISPATCH(FormOf)(call, true);
  CosSinView tables;
  const bool direct = IsPlain(form) && Direct(source, ids, direction, &tables);
  const int64_t most = direct ? call.length : TableTokens(call);
  for (int64_t begin = 0; begin < call.length; begin += most) {
    const int64_t tokens = std::min(most, call.length - begin);
    if (!direct) {
      float* cos = buffer.data();
      float* sin = cos + tokens * pairs;
      const int64_t pieces = (tokens + kTaskTokens - 1) / kTaskTokens;
      ParallelFor(pieces, threads, [&](int64_t piece, int worker) noexcept {
        const int64_t at = piece * kTaskTokens;
        const int64_t rows = std::min(kTaskTokens, tokens - at);
        float* c = cos + at * pairs;
        float* s = sin + at * pairs;
        source.Floats(ids.subspan(static_cast<size_t>(begin + at),
                                  static_cast<size_t>(rows)),
                      workers[static_cast<size_t>(worker)], c, s);
        Apply(direction, rows * pairs, c, s);
        if (!IsPlain(form)) {
          HWY_DYNAMIC_DISPATCH(MakeTables)(form, {c, s}, rows, pairs, c, s);
        }
      });
      tables = {.cos = cos, .sin = sin};
    }
    // Several tasks per thread, so that they finish together; split by head
    // rather than by token.
    const int64_t blocks = (tokens + step - 1) / step;
    const int64_t batch = block.end_batch - block.first_batch;
    const int64_t groups =
        std::clamp<int64_t>(4 * threads / (blocks * batch), 1, call.heads);
    const int64_t heads = (call.heads + groups - 1) / groups;
    ParallelFor(blocks * batch * groups, threads, [&](int64_t task) noexcept {
      RotateBlock part;
      part.first_batch = block.first_batch + task / groups % batch;
      part.end_batch = part.first_batch + 1;
      part.first_head = std::min(task % groups * heads, call.heads);
      part.end_head = std::min(part.first_head + heads, call.heads);
      const int64_t first = task / (groups * batch) * step;
      part.begin = begin + first;
      part.end = std::min(part.begin + step, begin + tokens);
      HWY_DYNAMIC_DISPATCH(RotateAny)
      (call, part, form, tables + first * pairs, /*after=*/{});
    });
  }
}

// Rotates blocks of tokens, each in all heads.
void RotateByToken(const RotateCall& call, const CosSinSource& source,
                   std::span<const int64_t> ids, RotateDirection direction,
                   int threads) {
  // Sequences with the same positions share a block.
  const bool shared = static_cast<int64_t>(ids.size()) == call.length;
  const int64_t sequences = shared ? 1 : call.batch;
  // Several blocks per thread, so that they finish together.
  const int64_t even =
      (call.length * sequences + 4 * threads - 1) / (int64_t{4} * threads);
  const int64_t step =
      std::clamp<int64_t>(std::min(even, kTaskTokens), 1, call.length);
  const int64_t blocks = (call.length + step - 1) / step;
  std::vector<RotateScratch> workers;
  for (int n = 0; n < threads; ++n) workers.emplace_back(call, source, step);
  const auto rotate = [&](int64_t task, int worker) noexcept {
    RotateBlock block;
    block.first_batch = task / blocks;
    block.end_batch = shared ? call.batch : block.first_batch + 1;
    block.end_head = call.heads;
    block.begin = task % blocks * step;
    block.end = std::min(block.begin + step, call.length);
    const std::span<const int64_t> mine = ids.subspan(
        static_cast<size_t>(block.first_batch * call.length + block.begin),
        static_cast<size_t>(block.end - block.begin));
    RotateScratch& scratch = workers[static_cast<size_t>(worker)];
    if (call.dtype == DType::kF64) {
      RotateDoubles(call, source, mine, direction, block, scratch);
    } else {
      RotateFloats(call, source, mine, direction, block, scratch);
    }
  };
  ParallelFor(sequences * blocks, threads, rotate);
}

}  // namespace

void RunRotate(const RotateCall& call, const CosSinSource& source,
               std::span<const int64_t> ids, RotateDirection direction,
               int threads) {
  const int64_t tokens = call.batch * call.length;
  if (tokens * call.heads * call.dim == 0) return;
  threads = NumThreads(threads);
  if (tokens * call.heads * call.pairs * 2 <= kFewNumbers) threads = 1;
  if (!HeadsAreLong(call)) {
    RotateByToken(call, source, ids, direction, threads);
    return;
  }
  const int64_t sequences =
      static_cast<int64_t>(ids.size()) == call.length ? 1 : call.batch;
  const int64_t batch = call.batch / sequences;
  FloatBuffer buffer(2 * TableTokens(call) * call.pairs);
  std::vector<CosSinScratch> workers(static_cast<size_t>(threads),
                                     source.NewScratch());
  for (int64_t n = 0; n < sequences; ++n) {
    RotateHeads(call, source,
                ids.subspan(static_cast<size_t>(n * call.length),
                            static_cast<size_t>(call.length)),
                direction,
                {.first_batch = n * batch, .end_batch = (n + 1) * batch},
                workers, buffer);
  }
}

}  // namespace kernels
}  // namespace locus
#endif

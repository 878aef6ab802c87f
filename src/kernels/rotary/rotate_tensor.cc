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

#include "kernels/rotary/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::FormOf;
using kernels::LongFormOf;
using kernels::RotateBlock;
using kernels::RotateCall;
using kernels::RotateTables;
using kernels::TableForm;

// cos and sin [rows, pairs] as SwapSpan reads them: [rows, 2 * pairs] each.
void MakeSwapTables(const float* cos, const float* sin, int64_t count,
                    float* cos2, float* sin2) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + step <= count; n += step) {
    const auto c = hn::LoadU(d, cos + n), s = hn::LoadU(d, sin + n);
    hn::StoreInterleaved2(c, c, d, cos2 + 2 * n);
    hn::StoreInterleaved2(hn::Neg(s), s, d, sin2 + 2 * n);
  }
  for (; n < count; ++n) {
    const auto c = hn::LoadU(d1, cos + n), s = hn::LoadU(d1, sin + n);
    hn::StoreInterleaved2(c, c, d1, cos2 + 2 * n);
    hn::StoreInterleaved2(hn::Neg(s), s, d1, sin2 + 2 * n);
  }
}

// The same in the order of HalvesPartsSpan: [rows, pairs] each.
void MakePartTables(const float* cos, const float* sin, int64_t rows,
                    int64_t pairs, float* cos2, float* sin2) {
  const hn::ScalableTag<float> d;
  for (int64_t at = 0; at < rows * pairs; at += pairs) {
    ToPartOrder(d, cos + at, pairs, cos2 + at);
    ToPartOrder(d, sin + at, pairs, sin2 + at);
  }
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

// Rows are asked for this many rows ahead: 4 KiB at D = 128 in float32. The
// hardware does so by itself within a page, but the rows of the next head lie
// in another one.
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kLine = 64;

template <typename T>
HWY_INLINE void PrefetchRow(const T* row, int64_t count) {
  const char* from = reinterpret_cast<const char*>(row);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  for (int64_t at = 0; at < bytes; at += kLine) hwy::Prefetch(from + at);
}

// The tokens of a block in its heads, by tables of kForm. The rows [rows,
// pairs] of the block after it, if any, are asked for on the way.
// kAround: results are stored around the caches, see StoresAround.
template <DType kType, PairLayout kLayout, TableForm kForm,
          bool kAround = false>
void RotateTokens(const RotateCall& call, const RotateBlock& block,
                  const float* cos, const float* sin,
                  const RotateTables& after) {
  using T = std::conditional_t<kType == DType::kF32, float, uint16_t>;
  const int64_t pairs = call.pairs, count = 2 * pairs;
  const int64_t first = call.first_channel, dim = call.dim;
  const int64_t tokens = block.end - block.begin;
  const int64_t heads = block.end_head - block.first_head;
  const int64_t x_step = call.from_stride[3], y_step = call.to_stride[3];
  const bool dense = x_step == 1 && y_step == 1;
  std::vector<T> packed(dense ? 0 : static_cast<size_t>(count));
  // Memory is walked in its own order: tokens inside heads, or the reverse.
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
  const auto turn = [pairs](const T* x, const float* c, const float* s,
                            T* y) HWY_ATTR {
    if constexpr (kAround) {
      if constexpr (kLayout == PairLayout::kHalves) {
        TurnHalves<kType, /*kBack=*/false>(x, c, s, 0, pairs, Around{y});
      } else {
        TurnInterleaved<kType, /*kBack=*/false>(x, c, s, pairs, Around{y});
      }
    } else if constexpr (kForm == TableForm::kParts) {
      TurnHalvesParts(x, c, s, pairs, y);
    } else if constexpr (kForm == TableForm::kSwapped) {
      TurnSwapped<kType>(x, c, s, pairs, y);
    } else if constexpr (kLayout == PairLayout::kHalves) {
      TurnHalves<kType, /*kBack=*/false>(x, c, s, 0, pairs, y);
    } else {
      TurnInterleaved<kType, /*kBack=*/false>(x, c, s, pairs, y);
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
      const float* c = cos + o * t_out;
      const float* s = sin + o * t_out;
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
          turn(x + first, c, s, y + first);
        } else {
          CopyChannels(x + first * x_step, x_step, 0, count, packed.data(), 1);
          turn(packed.data(), c, s, packed.data());
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

// Calls f.operator()<type, layout>() with those of the call.
template <typename F>
void WithTypeAndLayout(const RotateCall& call, const F& f) {
  const auto with = [&]<DType kType>() {
    if (call.layout == PairLayout::kHalves) {
      f.template operator()<kType, PairLayout::kHalves>();
    } else {
      f.template operator()<kType, PairLayout::kInterleaved>();
    }
  };
  switch (call.dtype) {
    case DType::kBF16:
      return with.template operator()<DType::kBF16>();
    case DType::kF16:
      return with.template operator()<DType::kF16>();
    default:
      return with.template operator()<DType::kF32>();
  }
}

// A result that no cache holds until it is read need not pass through one: each
// line of it would first be read. True for large arrays of floats of which
// whole vectors rotate.
bool StoresAround(const RotateCall& call) {
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

// Rotates by tables as they are, and stores around the caches.
template <PairLayout kLayout>
void RotateAround(const RotateCall& call, const RotateBlock& block,
                  const RotateTables& tables, const RotateTables& after) {
  RotateTokens<DType::kF32, kLayout, TableForm::kPlain, /*kAround=*/true>(
      call, block, tables.cos, tables.sin, after);
  hwy::FlushStream();
}

// By tables [tokens, pairs], with scratch for four times as many floats.
void RotateAny(const RotateCall& call, const RotateBlock& block,
               const RotateTables& tables, const RotateTables& after,
               float* scratch) {
  WithTypeAndLayout(call, [&]<DType kType, PairLayout kLayout>() {
    constexpr TableForm kForm = FormOf(kType, kLayout);
    if constexpr (kType == DType::kF32) {
      if (StoresAround(call)) {
        return RotateAround<kLayout>(call, block, tables, after);
      }
    }
    const int64_t rows = block.end - block.begin;
    const float* cos = tables.cos;
    const float* sin = tables.sin;
    if constexpr (kForm != TableForm::kPlain) {
      float* cos2 = scratch;
      float* sin2 = scratch + 2 * rows * call.pairs;
      if constexpr (kForm == TableForm::kParts) {
        MakePartTables(cos, sin, rows, call.pairs, cos2, sin2);
      } else {
        MakeSwapTables(cos, sin, rows * call.pairs, cos2, sin2);
      }
      cos = cos2;
      sin = sin2;
    }
    RotateTokens<kType, kLayout, kForm>(call, block, cos, sin, after);
  });
}

// By tables [tokens, pairs] that PrepareLong has been through.
void RotateLong(const RotateCall& call, const RotateBlock& block,
                const RotateTables& tables) {
  WithTypeAndLayout(call, [&]<DType kType, PairLayout kLayout>() {
    constexpr TableForm kForm = LongFormOf(kType, kLayout);
    if constexpr (kType == DType::kF32) {
      if (StoresAround(call)) {
        return RotateAround<kLayout>(call, block, tables, /*after=*/{});
      }
    }
    if constexpr (kForm != TableForm::kSwapped) {
      RotateTokens<kType, kLayout, kForm>(call, block, tables.cos, tables.sin,
                                          /*after=*/{});
    }
  });
}

// Rows [rows, pairs] in place as RotateLong wants them.
void PrepareLong(const RotateCall& call, int64_t rows, float* cos, float* sin) {
  if (LongFormOf(call.dtype, call.layout) == TableForm::kParts) {
    MakePartTables(cos, sin, rows, call.pairs, cos, sin);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(RotateAny);
HWY_EXPORT(RotateLong);
HWY_EXPORT(PrepareLong);

namespace kernels {
namespace {

template <typename T>
void Apply(Turn turn, int64_t count, T* cos, T* sin) {
  if (turn == Turn::kForward) return;
  for (int64_t n = 0; n < count; ++n) {
    const double c = static_cast<double>(cos[n]);
    const double s = static_cast<double>(sin[n]);
    const double square = turn == Turn::kInverse ? c * c + s * s : 1.0;
    cos[n] = static_cast<T>(c / square);
    sin[n] = static_cast<T>(-s / square);
  }
}

// cos and sin of the tokens that pass all heads together: 8 KiB, and twice that
// for pairs that SwapSpan turns. They stay in the first level of cache while
// every head streams past them, and a head's part, 4 KiB or more, is long
// enough to stream: twice as much changes nothing.
constexpr int64_t kStreamFloats = 2048;

// One buffer for several arrays, each on a line of its own.
constexpr int64_t RoundToLine(int64_t floats) {
  constexpr int64_t kLineFloats = 16;
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

void RotateFloats(const RotateCall& call, const CosSinSource& source,
                  std::span<const int64_t> ids, Turn turn,
                  const RotateBlock& block) {
  const int64_t pairs = call.pairs;
  const int64_t count = static_cast<int64_t>(ids.size()) * pairs;
  const int64_t step = std::clamp<int64_t>(
      kStreamFloats / std::max<int64_t>(2 * pairs, 1), 1, block.end);
  const int64_t room = RoundToLine(count);
  RotateTables tables;
  const bool direct =
      turn == Turn::kForward && source.Direct(ids, &tables.cos, &tables.sin);
  const int64_t filled = direct ? 0 : 2 * room;
  FloatBuffer buffer(filled + 4 * step * pairs);
  if (!direct) {
    float* cos = buffer.data();
    float* sin = cos + room;
    source.Floats(ids, cos, sin);
    Apply(turn, count, cos, sin);
    tables = {.cos = cos, .sin = sin};
  }
  RotateBlock part = block;
  while (part.begin < block.end) {
    part.end = std::min(part.begin + step, block.end);
    // The last part of a block asks too, for what the next task reads first;
    // past the end of a table that does nothing.
    const int64_t size = (part.end - part.begin) * pairs;
    RotateTables after;
    if (direct) after = {.cos = tables.cos + size, .sin = tables.sin + size};
    HWY_DYNAMIC_DISPATCH(RotateAny)
    (call, part, tables, after, buffer.data() + filled);
    tables = {.cos = tables.cos + size, .sin = tables.sin + size};
    part.begin = part.end;
  }
}

void RotateDoubles(const RotateCall& call, const CosSinSource& source,
                   std::span<const int64_t> ids, Turn turn,
                   const RotateBlock& block) {
  const size_t pairs = static_cast<size_t>(call.pairs);
  const Rotation place{.layout = call.layout,
                       .rotary_dim = 2 * call.pairs,
                       .first_channel = call.first_channel};
  std::vector<double> cos(pairs), sin(pairs);
  const auto& sx = call.from_stride;
  const auto& sy = call.to_stride;
  for (int64_t i = block.begin; i < block.end; ++i) {
    source.Doubles(ids[static_cast<size_t>(i - block.begin)], cos.data(),
                   sin.data());
    Apply(turn, call.pairs, cos.data(), sin.data());
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
          const double c = cos[static_cast<size_t>(p)];
          const double s = sin[static_cast<size_t>(p)];
          const double turned = c * u - s * v;
          v = s * u + c * v;
          u = turned;
        }
      }
    }
  }
}

// Tokens of a task at most: as many as share one evaluation of angles, see
// cos_sin.h.
constexpr int64_t kTaskTokens = 64;
// Waking a thread takes about as long as rotating this many numbers.
constexpr int64_t kFewNumbers = int64_t{64} << 10;

// Heads that are long stretches of memory are walked one after another, each as
// far as the tables of these many tokens reach: 1 MiB of cos and sin, which the
// threads share and the second level of cache holds for the most part. Where
// heads lie a power of two apart, a hop from head to head every 8 KiB halves
// the speed of memory (Zen 4), and twice as long a stretch gains little.
constexpr int64_t kLongFloats = int64_t{256} << 10;

bool HeadsAreLong(const RotateCall& call) {
  return call.dtype != DType::kF64 &&
         LongFormOf(call.dtype, call.layout) != TableForm::kSwapped &&
         std::abs(call.to_stride[1]) >= std::abs(call.to_stride[2]) &&
         2 * call.length * call.pairs >= kLongFloats / 2;
}

// Sequences [first_batch, end_batch), which share `ids` [L].
void RotateHeads(const RotateCall& call, const CosSinSource& source,
                 std::span<const int64_t> ids, Turn turn, RotateBlock block,
                 int threads) {
  const int64_t pairs = call.pairs;
  const int64_t step = std::max<int64_t>(kLongFloats / (2 * pairs), 1);
  // Tables that must be made are made for a few steps at a time.
  constexpr int64_t kStepsAtOnce = 8;
  RotateTables given;
  const bool direct =
      turn == Turn::kForward &&
      LongFormOf(call.dtype, call.layout) == TableForm::kPlain &&
      source.Direct(ids, &given.cos, &given.sin);
  const int64_t most = direct ? call.length : kStepsAtOnce * step;
  FloatBuffer buffer;
  for (int64_t begin = 0; begin < call.length; begin += most) {
    const int64_t tokens = std::min(most, call.length - begin);
    RotateTables tables = given;  // all of them, if any
    if (!direct) {
      buffer.Resize(2 * tokens * pairs);
      float* cos = buffer.data();
      float* sin = cos + tokens * pairs;
      const int64_t pieces = (tokens + kTaskTokens - 1) / kTaskTokens;
      ParallelFor(pieces, threads, [&](int64_t piece) {
        const int64_t at = piece * kTaskTokens;
        const int64_t rows = std::min(kTaskTokens, tokens - at);
        float* c = cos + at * pairs;
        float* s = sin + at * pairs;
        source.Floats(ids.subspan(static_cast<size_t>(begin + at),
                                  static_cast<size_t>(rows)),
                      c, s);
        Apply(turn, rows * pairs, c, s);
        HWY_DYNAMIC_DISPATCH(PrepareLong)(call, rows, c, s);
      });
      tables = {.cos = cos, .sin = sin};
    }
    // Several tasks a thread, so that they end together: heads apart rather
    // than tokens.
    const int64_t blocks = (tokens + step - 1) / step;
    const int64_t batch = block.end_batch - block.first_batch;
    const int64_t groups =
        std::clamp<int64_t>(4 * threads / (blocks * batch), 1, call.heads);
    const int64_t heads = (call.heads + groups - 1) / groups;
    ParallelFor(blocks * batch * groups, threads, [&](int64_t task) {
      RotateBlock part;
      part.first_batch = block.first_batch + task / groups % batch;
      part.end_batch = part.first_batch + 1;
      part.first_head = std::min(task % groups * heads, call.heads);
      part.end_head = std::min(part.first_head + heads, call.heads);
      const int64_t first = task / (groups * batch) * step;
      part.begin = begin + first;
      part.end = std::min(part.begin + step, begin + tokens);
      HWY_DYNAMIC_DISPATCH(RotateLong)
      (call, part,
       {.cos = tables.cos + first * pairs, .sin = tables.sin + first * pairs});
    });
  }
}

// Blocks of tokens, each in all heads.
void RotateByToken(const RotateCall& call, const CosSinSource& source,
                   std::span<const int64_t> ids, Turn turn, int threads) {
  // Sequences that share their positions share a block.
  const bool shared = static_cast<int64_t>(ids.size()) == call.length;
  const int64_t sequences = shared ? 1 : call.batch;
  // Several blocks a thread, so that they end together.
  const int64_t even =
      (call.length * sequences + 4 * threads - 1) / (int64_t{4} * threads);
  const int64_t step =
      std::clamp<int64_t>(std::min(even, kTaskTokens), 1, call.length);
  const int64_t blocks = (call.length + step - 1) / step;
  ParallelFor(sequences * blocks, threads, [&](int64_t task) {
    RotateBlock block;
    block.first_batch = task / blocks;
    block.end_batch = shared ? call.batch : block.first_batch + 1;
    block.end_head = call.heads;
    block.begin = task % blocks * step;
    block.end = std::min(block.begin + step, call.length);
    const std::span<const int64_t> mine = ids.subspan(
        static_cast<size_t>(block.first_batch * call.length + block.begin),
        static_cast<size_t>(block.end - block.begin));
    if (call.dtype == DType::kF64) {
      RotateDoubles(call, source, mine, turn, block);
    } else {
      RotateFloats(call, source, mine, turn, block);
    }
  });
}

}  // namespace

void RunRotate(const RotateCall& call, const CosSinSource& source,
               std::span<const int64_t> ids, Turn turn, int threads) {
  const int64_t tokens = call.batch * call.length;
  if (tokens * call.heads * call.dim == 0) return;
  threads = NumThreads(threads);
  if (tokens * call.heads * call.pairs * 2 <= kFewNumbers) threads = 1;
  if (!HeadsAreLong(call)) {
    RotateByToken(call, source, ids, turn, threads);
    return;
  }
  const int64_t sequences =
      static_cast<int64_t>(ids.size()) == call.length ? 1 : call.batch;
  const int64_t batch = call.batch / sequences;
  for (int64_t n = 0; n < sequences; ++n) {
    RotateHeads(call, source,
                ids.subspan(static_cast<size_t>(n * call.length),
                            static_cast<size_t>(call.length)),
                turn, {.first_batch = n * batch, .end_batch = (n + 1) * batch},
                threads);
  }
}

}  // namespace kernels
}  // namespace locus
#endif

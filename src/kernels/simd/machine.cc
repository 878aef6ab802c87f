// Measures the limits of the machine: loops that only multiply-add, read, copy
// or update.
#include "locus/machine.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/machine.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains that hide the latency of a multiply-add: 4 cycles at 2 per
// cycle need 8. As many as fit in registers.
#if HWY_MAX_BYTES >= 64
constexpr size_t kChains = 24;
#else
constexpr size_t kChains = 12;
#endif

// Returns the number of floating-point operations; `sink` keeps the compiler
// from removing the loop.
double MultiplyAdds(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> acc[kChains];
  for (size_t n = 0; n < kChains; ++n) acc[n] = hn::Set(d, float(n));
  const auto x = hn::Set(d, 0.999F);
  const auto y = hn::Set(d, 0.001F);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (size_t n = 0; n < kChains; ++n) acc[n] = hn::MulAdd(acc[n], x, y);
  }
  auto sum = acc[0];
  for (size_t n = 1; n < kChains; ++n) sum = hn::Add(sum, acc[n]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return static_cast<double>(rounds) * kChains * 2.0 *
         static_cast<double>(hn::Lanes(d));
}

void Read(const float* from, int64_t count, float* sink) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (int64_t n = 0; n + 4 * step <= count; n += 4 * step) {
    a = hn::Add(a, hn::Load(d, from + n));
    b = hn::Add(b, hn::Load(d, from + n + step));
    c = hn::Add(c, hn::Load(d, from + n + 2 * step));
    e = hn::Add(e, hn::Load(d, from + n + 3 * step));
  }
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

void Update(float* data, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0F);
  for (int64_t n = 0; n + step <= count; n += step) {
    hn::Store(hn::Add(hn::Load(d, data + n), one), d, data + n);
  }
}

void Copy(const float* from, float* to, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t n = 0; n + step <= count; n += step) {
    hn::Store(hn::Load(d, from + n), d, to + n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(Read);
HWY_EXPORT(Update);
HWY_EXPORT(Copy);

namespace {

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The shortest of several runs of task(thread) on all threads at once.
template <typename Task>
double BestSeconds(int threads, const Task& task) {
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    const double start = Seconds();
    ParallelFor(threads, threads, task);
    best = std::min(best, Seconds() - start);
  }
  return best;
}

}  // namespace

double MeasureFmaGflops(int threads) {
  threads = NumThreads(threads);
  constexpr int64_t kRounds = 100000;
  std::vector<float> sink(static_cast<size_t>(threads) * 16);
  double operations = 0.0;
  const double seconds = BestSeconds(threads, [&](int64_t t) noexcept {
    const double done = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(
        kRounds, &sink[static_cast<size_t>(t) * 16]);
    if (t == 0) operations = done;
  });
  return operations * threads / seconds / 1e9;
}

MachineLimits MeasureMachine(int threads) {
  threads = NumThreads(threads);
  MachineLimits limits;
  limits.fma_gflops = MeasureFmaGflops(threads);
  // 64 MiB per thread: more than the private caches of a core.
  constexpr int64_t kFloats = int64_t{16} << 20;
  std::vector<FloatBuffer> from, to;
  for (int t = 0; t < threads; ++t) {
    from.emplace_back(kFloats);
    to.emplace_back(kFloats);
    std::fill_n(from.back().data(), kFloats, 1.0F);
    std::fill_n(to.back().data(), kFloats, 0.0F);
  }
  std::vector<float> sink(static_cast<size_t>(threads) * 16);
  const double gigabytes = static_cast<double>(kFloats) * 4.0 * threads / 1e9;
  const auto rate = [&](double passes, const auto& task) {
    return passes * gigabytes / BestSeconds(threads, task);
  };
  limits.read_gb_per_s = rate(1.0, [&](int64_t t) noexcept {
    HWY_DYNAMIC_DISPATCH(Read)
    (from[static_cast<size_t>(t)].data(), kFloats,
     &sink[static_cast<size_t>(t) * 16]);
  });
  limits.copy_gb_per_s = rate(2.0, [&](int64_t t) noexcept {
    HWY_DYNAMIC_DISPATCH(Copy)
    (from[static_cast<size_t>(t)].data(), to[static_cast<size_t>(t)].data(),
     kFloats);
  });
  limits.update_gb_per_s = rate(2.0, [&](int64_t t) noexcept {
    HWY_DYNAMIC_DISPATCH(Update)(from[static_cast<size_t>(t)].data(), kFloats);
  });
  return limits;
}

}  // namespace locus
#endif

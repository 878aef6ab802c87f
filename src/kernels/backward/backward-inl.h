// Fused backward attention. Scores are recomputed by tile from lse; nothing of
// size N x N exists. With p and ds of a tile of queries x keys at hand:
//
//   dv += p^T do        dp = do v^T        ds = p (dp - do.o)
//   dq += ds k          dk += ds^T q
//
// A task is all of one head's keys for a stretch of queries; what several tasks
// add to (keys of grouped heads, tables) is kept apart and summed in order, so
// that the bits do not depend on the number of threads. Compiled once per
// SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#endif

#include <span>
#include <vector>

#include "kernels/backward/reduce-inl.h"
#include "kernels/backward/split-inl.h"
#include "kernels/backward/task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// As in the forward pass, most units of a wave are a task each, packed and
// finished by one thread; the last ones are shared.
void BackwardF32(const BackwardCall& args) {
  const Call& call = args.call;
  const int threads = call.plan.threads;
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0 || s.k_len == 0) return;
  const PackedTables tables(call);
  const BackwardTables backward(tables, args);
  const BackwardSplit split(tables, backward, args.want_terms);
  const int64_t units = tables.Units();
  for (int64_t first = 0; first < units; first += split.wave) {
    const int64_t count = std::min(split.wave, units - first);
    // Units of one sequence need the tables of their own heads only.
    const bool one_sequence =
        first / s.kv_heads == (first + count - 1) / s.kv_heads;
    const int64_t first_head =
        one_sequence ? first % s.kv_heads * tables.group : 0;
    const int64_t heads = one_sequence ? count * tables.group : s.q_heads;
    tables.PackTables(first_head, heads);
    backward.Pack(first_head, heads, threads);

    std::vector<TaskGrads> grads(static_cast<size_t>(count * split.per_unit));
    const auto head_of = [&](int64_t task) {
      return (first + task / split.per_unit) % s.kv_heads * tables.group +
             task % split.per_unit / split.per_head;
    };
    const auto run_task = [&](const BackwardPacked& bp, int64_t task) {
      static thread_local BackwardTile scratch;
      BackwardTask run(bp, args, scratch, grads[static_cast<size_t>(task)]);
      const int64_t begin = task % split.per_head * split.stretch;
      run.Run((first + task / split.per_unit) / s.kv_heads, head_of(task),
              begin, std::min(split.stretch, s.q_len - begin));
    };
    const auto finish = [&](const BackwardPacked& bp, int64_t n) {
      FinishKeys(
          bp, args, (first + n) / s.kv_heads, (first + n) % s.kv_heads,
          std::span(grads).subspan(static_cast<size_t>(n * split.per_unit),
                                   static_cast<size_t>(split.per_unit)));
    };
    const int64_t owned =
        threads == 1 ? count : std::max<int64_t>(count - threads, 0);
    BackwardPacked shared(tables, backward);
    shared.Pack(first + owned, count - owned);
    const int64_t shared_tasks = (count - owned) * split.per_unit;
    ParallelFor(owned + shared_tasks, threads, [&](int64_t order) {
      if (order < owned) {
        BackwardPacked own(tables, backward);
        own.Pack(first + order, 1);
        for (int64_t n = 0; n < split.per_unit; ++n) {
          run_task(own, order * split.per_unit + n);
        }
        finish(own, order);
        return;
      }
      // Last stretches first: under a causal mask they are the longest.
      const int64_t shared_heads = shared_tasks / split.per_head;
      const int64_t part = split.per_head - 1 - (order - owned) / shared_heads;
      const int64_t head =
          owned * tables.group + (order - owned) % shared_heads;
      run_task(shared, head * split.per_head + part);
    });
    ParallelFor(count - owned, threads,
                [&](int64_t n) { finish(shared, owned + n); });
    if (args.want_terms) {
      for (int64_t task = 0; task < count * split.per_unit; ++task) {
        AddTermGrads(shared, grads[static_cast<size_t>(task)], head_of(task),
                     *args.grads);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_

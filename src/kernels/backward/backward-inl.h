// Fused backward attention. Scores are recomputed by tile from lse; nothing of
// size N x N exists. With p and ds of a tile of queries x keys at hand:
//
//   dv += p^T do        dp = do v^T        ds = p (dp - do.o)
//   dq += ds k          dk += ds^T q
//
// A task is all of one head's keys for a stretch of queries; what several tasks
// add to (keys of grouped heads, tables) is kept apart and summed in order, so
// that the bits do not depend on the number of threads. Included once a SIMD
// target.
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
void BackwardF32(const BackwardCall& args, int threads) {
  const Call& call = args.call;
  const CallSizes& s = call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0 || s.k_len == 0) return;
  const PackedTables tables(call, threads);
  const BackwardTables backward(tables, args);
  const BackwardPlan plan(tables, backward, args.want_terms);
  const int64_t units = tables.Units();
  for (int64_t first = 0; first < units; first += plan.wave) {
    const int64_t count = std::min(plan.wave, units - first);
    // Units of one sequence need the tables of their own heads only.
    const bool one_sequence =
        first / s.kv_heads == (first + count - 1) / s.kv_heads;
    const int64_t first_head =
        one_sequence ? first % s.kv_heads * tables.group : 0;
    const int64_t heads = one_sequence ? count * tables.group : s.q_heads;
    tables.PackTables(first_head, heads);
    backward.Pack(first_head, heads, threads);

    std::vector<TaskGrads> grads(static_cast<size_t>(count * plan.per_unit));
    const auto head_of = [&](int64_t task) {
      return (first + task / plan.per_unit) % s.kv_heads * tables.group +
             task % plan.per_unit / plan.per_head;
    };
    const auto run_task = [&](const BackwardPacked& bp, int64_t task) {
      static thread_local BackwardTile scratch;
      BackwardTask run(bp, args, scratch, grads[static_cast<size_t>(task)]);
      const int64_t begin = task % plan.per_head * plan.stretch;
      run.Run((first + task / plan.per_unit) / s.kv_heads, head_of(task), begin,
              std::min(plan.stretch, s.q_len - begin));
    };
    const auto finish = [&](const BackwardPacked& bp, int64_t n) {
      FinishKeys(
          bp, args, (first + n) / s.kv_heads, (first + n) % s.kv_heads,
          std::span(grads).subspan(static_cast<size_t>(n * plan.per_unit),
                                   static_cast<size_t>(plan.per_unit)));
    };
    const int64_t owned =
        threads == 1 ? count : std::max<int64_t>(count - threads, 0);
    BackwardPacked shared(tables, backward);
    shared.Pack(first + owned, count - owned);
    const int64_t shared_tasks = (count - owned) * plan.per_unit;
    ParallelFor(owned + shared_tasks, threads, [&](int64_t order) {
      if (order < owned) {
        BackwardPacked own(tables, backward);
        own.Pack(first + order, 1);
        for (int64_t n = 0; n < plan.per_unit; ++n) {
          run_task(own, order * plan.per_unit + n);
        }
        finish(own, order);
        return;
      }
      // Last stretches first: under a causal mask they are the longest.
      const int64_t shared_heads = shared_tasks / plan.per_head;
      const int64_t part = plan.per_head - 1 - (order - owned) / shared_heads;
      const int64_t head =
          owned * tables.group + (order - owned) % shared_heads;
      run_task(shared, head * plan.per_head + part);
    });
    ParallelFor(count - owned, threads,
                [&](int64_t n) { finish(shared, owned + n); });
    if (args.want_terms) {
      for (int64_t task = 0; task < count * plan.per_unit; ++task) {
        AddTermGrads(shared, grads[static_cast<size_t>(task)], head_of(task),
                     *args.grads);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_

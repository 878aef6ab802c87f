// Fused backward attention. Scores are recomputed tile by tile from lse, so no
// Lq x Lk matrix is stored. With p and ds of a tile of queries x keys:
//
//   dv += p^T do        dp = do v^T        ds = p (dp - do.o)
//   dq += ds k          dk += ds^T q
//
// A task is a range of queries of one head, against all keys. Where several
// tasks add to the same gradient (keys of grouped heads, tables), each has its
// own sums, which are added in a fixed order, so results are bitwise
// independent of the number of threads. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backward/reduce-inl.h"
#include "kernels/backward/task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// How the pass is divided into tasks. Depends on the shape alone, except for
// the waves, which do not affect results.
struct BackwardSplit {
  explicit BackwardSplit(const BackwardTables& bp);

  int64_t stretch = 0;   // queries per task
  int64_t per_head = 0;  // tasks per query head
  int64_t per_unit = 0;
  int64_t wave = 0;  // units whose tables and sums exist at the same time
};

inline BackwardSplit::BackwardSplit(const BackwardTables& bp) {
  const PackedTables& tables = bp.packed;
  const CallSizes& s = tables.call.sizes;
  // One task per head, or with few heads several ranges of queries, each of at
  // least four tiles.
  constexpr int64_t kEnoughTasks = 8;
  const int64_t stretches =
      std::clamp<int64_t>(kEnoughTasks / (s.batch * s.q_heads), 1,
                          std::max<int64_t>(s.q_len / (4 * kBwdQueries), 1));
  stretch = AlignUp((s.q_len + stretches - 1) / stretches, kBwdQueries);
  per_head = (s.q_len + stretch - 1) / stretch;
  per_unit = tables.group * per_head;
  // Limits the memory for tables of heads and sums of tasks: a wave has as many
  // units as fit in 64 MiB, but at least two per thread. Packed operands of a
  // unit are released when it is finished.
  int64_t floats = 1;
  const auto add = [&](const TableByOffset* table, int64_t stride) {
    if (table == nullptr) return;
    floats += table->map.width() * (tables.group * 2 + per_unit) * stride;
  };
  add(tables.q_table.get(), bp.table_stride);
  if (bp.shared_pairs) floats += per_unit * stretch * s.k_len;
  add(tables.v_table.get(), bp.value_pad);
  if (tables.extra > 0) floats += per_unit * 2 * tables.cols * tables.extra;
  if (tables.bias) floats += per_unit * 2 * tables.bias->map().width();
  constexpr int64_t kWaveFloats = int64_t{16} << 20;
  wave = std::clamp<int64_t>(
      std::max<int64_t>(2 * tables.threads, kWaveFloats / floats), 1,
      tables.Units());
}

// As in the forward pass, most units of a wave are one task each, packed and
// finished by a single thread; the last ones are shared by all threads.
class BackwardPass {
 public:
  // Allocates all memory of the pass.
  explicit BackwardPass(const BackwardCall& args);
  void Run();

 private:
  // The query heads whose tables are used by units [first, first + count).
  Interval Heads(int64_t first, int64_t count) const;
  void RunWave(int64_t first, int64_t count);
  // Runs task `task` of the wave, counted over all of its units.
  void RunTask(BackwardWorker& worker, const BackwardPacked& operands,
               int64_t task, KeySums& sums) noexcept;
  // Stores the gradients of the keys and values of unit `unit` of the wave.
  void Finish(BackwardWorker& worker, const BackwardPacked& operands,
              int64_t unit, std::span<const KeySums> sums) noexcept;
  // Adds the tasks' gradients of a pair bias that several tasks share.
  void AddPairBias(int64_t tasks);
  int64_t SequenceOf(int64_t task) const {
    return (first_ + task / split_.per_unit) / s_.kv_heads;
  }
  int64_t HeadOf(int64_t task) const {
    return (first_ + task / split_.per_unit) % s_.kv_heads * tables_.group +
           task % split_.per_unit / split_.per_head;
  }

  const BackwardCall& args_;
  const CallSizes& s_;
  const int threads_;
  const PackedTables tables_;
  BackwardTables bp_;
  const BackwardSplit split_;
  const int64_t shared_units_;  // at most, per wave
  BackwardPacked shared_;
  std::vector<KeySums> shared_sums_;
  std::vector<TermSums> term_sums_;
  std::vector<std::unique_ptr<BackwardWorker>> workers_;
  int64_t first_ = 0;  // unit of the current wave
};

inline BackwardPass::BackwardPass(const BackwardCall& args)
    : args_(args),
      s_(args.call.sizes),
      threads_(args.call.plan.threads),
      tables_(args.call),
      bp_(tables_, args),
      split_(bp_),
      shared_units_(threads_ == 1 ? 0
                                  : std::min<int64_t>(threads_, split_.wave)),
      shared_(bp_, shared_units_, threads_) {
  int64_t heads = 0;
  for (int64_t first = 0; first < tables_.Units(); first += split_.wave) {
    heads = std::max(
        heads,
        Heads(first, std::min(split_.wave, tables_.Units() - first)).size());
  }
  bp_.Reserve(heads);
  for (int64_t n = 0; n < shared_units_ * split_.per_unit; ++n) {
    shared_sums_.emplace_back(bp_);
  }
  for (int64_t n = 0; n < split_.wave * split_.per_unit; ++n) {
    term_sums_.emplace_back(bp_, split_.stretch);
  }
  const int64_t own_units = split_.wave > shared_units_ ? 1 : 0;
  for (int n = 0; n < threads_; ++n) {
    workers_.push_back(std::make_unique<BackwardWorker>(
        bp_, args, own_units, own_units * split_.per_unit, split_.stretch));
  }
}

inline void BackwardPass::Run() {
  if (bp_.operands.sinks.defined()) AddSinkGrads(args_.call, args_, bp_.delta);
  if (s_.k_len == 0) return;
  for (int64_t first = 0; first < tables_.Units(); first += split_.wave) {
    RunWave(first, std::min(split_.wave, tables_.Units() - first));
  }
}

// Units of a single sequence need only the tables of their own heads.
inline Interval BackwardPass::Heads(int64_t first, int64_t count) const {
  if (first / s_.kv_heads != (first + count - 1) / s_.kv_heads) {
    return {0, s_.q_heads};
  }
  const int64_t head = first % s_.kv_heads * tables_.group;
  return {head, head + count * tables_.group};
}

inline void BackwardPass::RunTask(BackwardWorker& worker,
                                  const BackwardPacked& operands, int64_t task,
                                  KeySums& sums) noexcept {
  const int64_t begin = task % split_.per_head * split_.stretch;
  worker.Run(operands, SequenceOf(task), HeadOf(task), begin,
             std::min(split_.stretch, s_.q_len - begin), sums,
             term_sums_[static_cast<size_t>(task)]);
}

inline void BackwardPass::Finish(BackwardWorker& worker,
                                 const BackwardPacked& operands, int64_t unit,
                                 std::span<const KeySums> sums) noexcept {
  FinishKeys(operands, args_, (first_ + unit) / s_.kv_heads,
             (first_ + unit) % s_.kv_heads, sums,
             std::span(term_sums_)
                 .subspan(static_cast<size_t>(unit * split_.per_unit),
                          static_cast<size_t>(split_.per_unit)),
             worker.d_key.data());
}

inline void BackwardPass::RunWave(int64_t first, int64_t count) {
  first_ = first;
  const Interval heads = Heads(first, count);
  bp_.Pack(heads.begin, heads.size());
  const int64_t owned = std::max<int64_t>(count - shared_units_, 0);
  shared_.Pack(first + owned, count - owned);
  const int64_t shared_tasks = (count - owned) * split_.per_unit;
  const auto run = [&](int64_t order, int number) noexcept {
    BackwardWorker& worker = *workers_[static_cast<size_t>(number)];
    if (order < owned) {
      worker.own.Pack(first + order, 1);
      for (int64_t n = 0; n < split_.per_unit; ++n) {
        RunTask(worker, worker.own, order * split_.per_unit + n,
                worker.own_sums[static_cast<size_t>(n)]);
      }
      Finish(worker, worker.own, order, worker.own_sums);
      return;
    }
    // Last ranges first: under a causal mask they take longest.
    const int64_t shared_heads = shared_tasks / split_.per_head;
    const int64_t part = split_.per_head - 1 - (order - owned) / shared_heads;
    const int64_t task =
        (order - owned) % shared_heads * split_.per_head + part;
    RunTask(worker, shared_, owned * split_.per_unit + task,
            shared_sums_[static_cast<size_t>(task)]);
  };
  ParallelFor(owned + shared_tasks, threads_, run);
  const auto finish = [&](int64_t n, int number) noexcept {
    Finish(*workers_[static_cast<size_t>(number)], shared_, owned + n,
           std::span(shared_sums_)
               .subspan(static_cast<size_t>(n * split_.per_unit),
                        static_cast<size_t>(split_.per_unit)));
  };
  ParallelFor(count - owned, threads_, finish);
  const int64_t tasks = count * split_.per_unit;
  for (int64_t task = 0; task < tasks; ++task) {
    const TermSums& sums = term_sums_[static_cast<size_t>(task)];
    AddTermGrads(bp_, sums, HeadOf(task), *args_.grads);
    if (bp_.operands.key_bias.defined()) {
      AddKeyBiasGrad(args_.call, sums, SequenceOf(task), HeadOf(task),
                     bp_.operands.key_bias);
    }
  }
  if (bp_.shared_pairs) AddPairBias(tasks);
}

inline void BackwardPass::AddPairBias(int64_t tasks) {
  Tensor& grad = bp_.operands.pair_bias;
  // If queries are in tensor order, rows of different queries go to different
  // places, so threads can divide them.
  const bool apart = grad.size(2) == s_.q_len &&
                     args_.call.plan.tokens.Sequences() == 1 &&
                     args_.call.Queries(0).in_order;
  const auto add = [&](int64_t i, int /*worker*/) noexcept {
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t begin = task % split_.per_head * split_.stretch;
      if (begin + i >= s_.q_len) continue;
      AddPairBiasRow(args_.call, term_sums_[static_cast<size_t>(task)],
                     SequenceOf(task), HeadOf(task), begin, i, grad);
    }
  };
  ParallelFor(split_.stretch, apart ? threads_ : 1, add);
}

void BackwardF32(const BackwardCall& args) {
  const CallSizes& s = args.call.sizes;
  if (s.batch * s.q_heads * s.q_len == 0) return;
  BackwardPass(args).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_INL_H_

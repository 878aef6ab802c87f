// One sequence over several processes: each rank holds some of its tokens, and
// gets the rows that one process would compute. Run it with
//   mpirun -n 4 example_ring_attention
#include <locus/locus.h>
#include <locus/ring.h>
#include <mpi.h>

#include <cstdio>

#include "inputs.h"

namespace {

constexpr int64_t kHeads = 4, kLength = 1000, kDim = 64;

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  // The same on every rank.
  const locus::Tensor q = RandomTensor(kHeads, kLength, kDim, 1),
                      k = RandomTensor(kHeads, kLength, kDim, 2),
                      v = RandomTensor(kHeads, kLength, kDim, 3);
  const locus::Rope rope(kDim, locus::PairLayout::kHalves);
  // Zigzag: every rank has an early and a late stretch, so that causal
  // attention is the same work for each.
  const auto zigzag = locus::ring::Sharding::kZigzag;
  const auto mine = locus::ring::Shard(zigzag, kLength, rank, ranks);
  locus::ring::Stats stats;
  const auto result = locus::ring::Attention(
      MPI_COMM_WORLD, locus::ring::TakeShard(q, mine),
      locus::ring::TakeShard(k, mine), locus::ring::TakeShard(v, mine), rope,
      {.attention = {.causal = true}, .sharding = zigzag, .stats = &stats});

  const locus::Tensor want = locus::ring::TakeShard(
      locus::Attention(q, k, v, rope, {.causal = true}).out, mine);
  const double error = LargestDifference(result.out, want);
  std::printf(
      "rank %d of %d: %d tokens, %d kB sent, equal to one process: %s\n", rank,
      ranks, static_cast<int>(result.out.size(2)),
      static_cast<int>(stats.bytes_sent / 1000), error < 1e-5 ? "yes" : "NO");
  MPI_Finalize();
  return error < 1e-5 ? 0 : 1;
}

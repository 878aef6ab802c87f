// A user of the installed ring, on the one rank that it is started as: prints
// what ../consumer.cc prints.
#include <locus/locus.h>
#include <locus/ring.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const locus::Rope rope(8, locus::PairLayout::kHalves);
  const locus::Tensor x =
      locus::Tensor::From({1, 1, 2, 8}, std::vector<float>(2 * 8, 0.5F));
  const locus::Tensor out =
      locus::ring::Attention(MPI_COMM_WORLD, x, x, x, rope).out;
  const double error = std::abs(out.At(0, 0, 1, 7) - 0.5);
  std::printf("%s %s %g\n", "rope", locus::Version(), error);
  MPI_Finalize();
  return error > 1e-6 ? 1 : 0;
}

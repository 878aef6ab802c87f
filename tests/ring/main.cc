// GoogleTest under mpirun: every rank runs every test.
#include <gtest/gtest.h>
#include <mpi.h>

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  // A rank that failed may have left the others waiting.
  if (failed != 0) MPI_Abort(MPI_COMM_WORLD, failed);
  MPI_Finalize();
  return failed;
}

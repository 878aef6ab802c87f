// The number of threads of a training step.
#ifndef LOCUS_LAB_TRAIN_THREADS_H_
#define LOCUS_LAB_TRAIN_THREADS_H_

namespace locus::lab {

// Sets the number of threads of libtorch and its BLAS library. It affects the
// order of sums, so the bits of a run depend on it.
void SetThreads(int threads);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_THREADS_H_

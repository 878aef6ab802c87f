// The number of threads that a step runs on.
#ifndef LOCUS_LAB_TRAIN_THREADS_H_
#define LOCUS_LAB_TRAIN_THREADS_H_

namespace locus::lab {

// Sets libtorch's and its BLAS library's threads. Sums have another order for
// another number, so the bits of a run depend on it.
void SetThreads(int threads);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_THREADS_H_

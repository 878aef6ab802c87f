// What a step runs on: one number of threads, and a BLAS that knows the CPU.
#ifndef LOCUS_LAB_THREADS_H_
#define LOCUS_LAB_THREADS_H_

namespace locus::lab {

// Sets libtorch's and its BLAS library's threads. OpenBLAS sums in another
// order for another number, so the bits of a run depend on it.
void SetThreads(int threads);

// An OpenBLAS older than the CPU takes it for an old one and is several times
// slower. It chooses when it is loaded: this starts the program anew with the
// choice that fits, where that is needed and the user has made none. First
// thing in main; child processes inherit the choice.
void SettleBlas(char** argv);

}  // namespace locus::lab

#endif  // LOCUS_LAB_THREADS_H_

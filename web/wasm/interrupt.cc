// A page runs on one thread, in a worker that nobody interrupts: what
// src/core/threads.cc defines for long loops, without its pool.
namespace locus {

void CheckInterrupt();
void CheckInterrupt() {}

}  // namespace locus

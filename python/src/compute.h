// The work itself: without the interpreter's lock, and ended by Ctrl-C.
#ifndef LOCUS_PYTHON_SRC_COMPUTE_H_
#define LOCUS_PYTHON_SRC_COMPUTE_H_

#include <nanobind/nanobind.h>

#include "locus/threads.h"

namespace locus::python {

// While one lives, calls of this thread look for signals twenty times a second;
// what a handler raises, such as KeyboardInterrupt, ends the call.
class Interruptible {
 public:
  Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

 private:
  const InterruptCheck outer_;
};

// work() while other threads of Python run.
template <typename Work>
auto Compute(const Work& work) {
  const Interruptible interruptible;
  const nanobind::gil_scoped_release release;
  return work();
}

// The same for what must not stop half-way: changes in place.
template <typename Work>
auto ComputeWhole(const Work& work) {
  const nanobind::gil_scoped_release release;
  return work();
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_COMPUTE_H_

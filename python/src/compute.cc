#include "compute.h"

#include <chrono>

namespace locus::python {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks: taking the interpreter's lock may mean waiting for it.
constexpr auto kPause = std::chrono::milliseconds(50);
thread_local Clock::time_point next_look;

void LookForSignals() {
  const Clock::time_point now = Clock::now();
  if (now < next_look) return;
  next_look = now + kPause;
  const nanobind::gil_scoped_acquire gil;
  // Handlers run on the main thread only; elsewhere this does nothing.
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace

Interruptible::Interruptible() : outer_(SetInterruptCheck(&LookForSignals)) {
  next_look = Clock::now() + kPause;
}

Interruptible::~Interruptible() { SetInterruptCheck(outer_); }

}  // namespace locus::python

// LOCUS_VERBOSE: one line per call on standard error.
#ifndef LOCUS_SRC_KERNELS_PLAN_VERBOSE_H_
#define LOCUS_SRC_KERNELS_PLAN_VERBOSE_H_

#include <chrono>

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Prints the plan's report, and the time from construction to destruction.
class VerboseCall {
 public:
  explicit VerboseCall(const Plan& plan) {
    if (Enabled()) Begin(plan);
  }
  VerboseCall(const VerboseCall&) = delete;
  VerboseCall& operator=(const VerboseCall&) = delete;
  ~VerboseCall() {
    if (plan_ != nullptr) End();
  }

  // Whether LOCUS_VERBOSE is set to anything but "" or "0"; read once.
  static bool Enabled();

 private:
  void Begin(const Plan& plan);
  void End() noexcept;

  const Plan* plan_ = nullptr;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_VERBOSE_H_

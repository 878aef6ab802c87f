// The drivers of a forward call, in the order in which they are asked.
#ifndef LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_
#define LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_

#include <span>

#include "kernels/plan/plan.h"

namespace locus::kernels {

struct Driver {
  const char* name;
  // Why it does not take a call, as "more than 256 tokens"; nullptr: it does.
  // Sizes, options, shape and terms of the plan are known, and fit.
  const char* (*refuses)(const Plan& plan);
  // What the plan is to prepare for it.
  bool wants_tokens;
  bool wants_angles;
  // nullptr: the backward pass, which has a call of its own.
  void (*run)(const Call& call, const CallResult& result);
};

// Fastest first; the last takes what the others leave.
std::span<const Driver> DriversOf(Pass pass);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_

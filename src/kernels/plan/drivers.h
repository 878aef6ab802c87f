// The list of drivers, in the order in which they are tried.
#ifndef LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_
#define LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_

#include <span>

#include "kernels/plan/plan.h"

namespace locus::kernels {

struct Driver {
  const char* name;
  // The reason why it cannot run a call, such as "more than 256 tokens", or
  // nullptr if it can. Sizes, options, shape and terms of the plan are set and
  // checked.
  const char* (*refuses)(const Plan& plan);
  // Whether the plan must prepare `tokens`, or cosines and sines.
  bool wants_tokens;
  bool wants_angles;
  // nullptr for the backward pass, whose entry point is Backward.
  void (*run)(const Call& call, const CallResult& result);
};

// Fastest first. The last forward driver accepts every call.
std::span<const Driver> DriversOf(Pass pass);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_DRIVERS_H_

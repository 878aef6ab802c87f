#include <hwy/highway.h>
#include <hwy/targets.h>

#include "core/fail.h"
#include "locus/simd.h"

namespace locus {
namespace {

// The compiled targets that this machine supports, as a mask.
int64_t Usable() {
  hwy::SetSupportedTargetsForTest(0);
  return hwy::SupportedTargets() & HWY_TARGETS;
}

int64_t forced = 0;

}  // namespace

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  // Lower bits are better targets.
  for (int64_t rest = Usable(); rest != 0; rest &= rest - 1) {
    names.emplace_back(hwy::TargetName(rest & -rest));
  }
  hwy::SetSupportedTargetsForTest(forced);
  return names;
}

std::string SimdTarget() {
  const int64_t usable = Usable();
  hwy::SetSupportedTargetsForTest(forced);
  const int64_t in_use = forced != 0 ? forced : usable & -usable;
  return hwy::TargetName(in_use);
}

void ForceSimdTarget(std::string_view name) {
  int64_t found = 0;
  for (int64_t rest = Usable(); rest != 0; rest &= rest - 1) {
    if (hwy::TargetName(rest & -rest) == name) found = rest & -rest;
  }
  if (found == 0 && !name.empty()) {
    hwy::SetSupportedTargetsForTest(forced);
    Fail("there is no SIMD target '{}'; this machine has {}", name,
         fmt::join(SimdTargets(), ", "));
  }
  forced = found;
  hwy::SetSupportedTargetsForTest(forced);
  // Makes the next dispatch choose again.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace locus

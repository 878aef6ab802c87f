#include "kernels/plan/drivers.h"

#include "kernels/decode/decode.h"
#include "kernels/forward/forward.h"
#include "kernels/short/short.h"

namespace locus::kernels {
namespace {

constexpr Driver kForward[] = {
    {.name = "short",
     .refuses = ShortRefuses,
     .wants_tokens = false,
     .wants_angles = false,
     .run = Short},
    {.name = "decode",
     .refuses = DecodeRefuses,
     .wants_tokens = true,
     .wants_angles = false,
     .run = Decode},
    {.name = "tiled",
     .refuses = [](const Plan& /*plan*/) -> const char* { return nullptr; },
     .wants_tokens = true,
     .wants_angles = true,
     .run = Forward},
};

constexpr Driver kBackward[] = {
    {.name = "tiled",
     .refuses =
         [](const Plan& plan) {
           return TablesByPair(plan.terms)
                      ? "there is no backward pass through a table over a 2-D "
                        "window or with a special token; a bias may have both"
                      : nullptr;
         },
     .wants_tokens = true,
     .wants_angles = true,
     .run = nullptr},
};

}  // namespace

std::span<const Driver> DriversOf(Pass pass) {
  if (pass == Pass::kBackward) return kBackward;
  return kForward;
}

}  // namespace locus::kernels

#include "kernels/plan/verbose.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "core/fail.h"

namespace locus::kernels {

bool VerboseCall::Enabled() {
  static const bool enabled = [] {
    const char* value = std::getenv("LOCUS_VERBOSE");
    const std::string_view asked = value == nullptr ? "" : value;
    return !asked.empty() && asked != "0";
  }();
  return enabled;
}

void VerboseCall::Begin(const Plan& plan) {
  plan_ = &plan;
  start_ = std::chrono::steady_clock::now();
}

void VerboseCall::End() noexcept {
  const double milliseconds = std::chrono::duration<double, std::milli>(
                                  std::chrono::steady_clock::now() - start_)
                                  .count();
  try {
    const std::string line = fmt::format("locus: {}, {:.3f} ms\n",
                                         plan_->Report().Line(), milliseconds);
    std::fputs(line.c_str(), stderr);
  } catch (const std::exception&) {
    // Out of memory for the line; the call itself has succeeded.
  }
}

}  // namespace locus::kernels

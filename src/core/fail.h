// Throws a formatted Error: Fail("heads must be positive, got {}", heads).
#ifndef LOCUS_SRC_CORE_FAIL_H_
#define LOCUS_SRC_CORE_FAIL_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "locus/error.h"

namespace locus {

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace locus

#endif  // LOCUS_SRC_CORE_FAIL_H_

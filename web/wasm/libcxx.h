// What the C++ library of Debian's emscripten (libc++ 14) lacks of C++20, and
// the core uses: algorithms on ranges, std::bit_cast,
// numbers with a point in std::from_chars. Included before every
// source of the WebAssembly build alone; newer libraries have their own.
#ifndef LOCUS_WEB_WASM_LIBCXX_H_
#define LOCUS_WEB_WASM_LIBCXX_H_

#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

namespace std {

template <typename To, typename From>
To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// Decimal notation alone, as the standard has it: no blanks, no sign "+".
inline from_chars_result from_chars(const char* first, const char* last,
                                    double& value) {
  const char* end = first;
  while (end != last &&
         strchr("0123456789.-+eEinfatyINFATY", *end) != nullptr &&
         *end != '\0') {
    ++end;
  }
  const string text(first, end);
  if (text.empty() || text[0] == '+') return {first, errc::invalid_argument};
  char* stop = nullptr;
  const double parsed = strtod(text.c_str(), &stop);
  if (stop == text.c_str()) return {first, errc::invalid_argument};
  if (isinf(parsed) && text.find_first_of("iI") == string::npos) {
    return {first + (stop - text.c_str()), errc::result_out_of_range};
  }
  value = parsed;
  return {first + (stop - text.c_str()), errc()};
}

namespace ranges {

template <typename R, typename F>
bool all_of(R&& r, F f) {
  return std::all_of(std::begin(r), std::end(r), f);
}
template <typename R, typename F>
bool any_of(R&& r, F f) {
  return std::any_of(std::begin(r), std::end(r), f);
}
template <typename R, typename F>
bool none_of(R&& r, F f) {
  return std::none_of(std::begin(r), std::end(r), f);
}
template <typename R, typename T>
auto count(R&& r, const T& value) {
  return std::count(std::begin(r), std::end(r), value);
}
template <typename R, typename F>
auto count_if(R&& r, F f) {
  return std::count_if(std::begin(r), std::end(r), f);
}
template <typename R, typename T, typename P = identity>
auto find(R&& r, const T& value, P by = {}) {
  return std::find_if(std::begin(r), std::end(r), [&](const auto& one) {
    return std::invoke(by, one) == value;
  });
}
template <typename R, typename F>
auto find_if(R&& r, F f) {
  return std::find_if(std::begin(r), std::end(r), f);
}
template <typename R, typename T, typename L = less, typename P = identity>
auto lower_bound(R&& r, const T& value, L is_less = {}, P by = {}) {
  return std::lower_bound(std::begin(r), std::end(r), value,
                          [&](const auto& one, const T& other) {
                            return is_less(std::invoke(by, one), other);
                          });
}
template <typename R, typename T>
bool binary_search(R&& r, const T& value) {
  return std::binary_search(std::begin(r), std::end(r), value, less{});
}
template <typename R>
auto max_element(R&& r) {
  return std::max_element(std::begin(r), std::end(r));
}
template <typename R>
auto min_element(R&& r) {
  return std::min_element(std::begin(r), std::end(r));
}
template <typename I>
struct min_max_result {
  I min;
  I max;
};
template <typename R>
auto minmax_element(R&& r) {
  const auto [low, high] = std::minmax_element(std::begin(r), std::end(r));
  return min_max_result<decltype(std::begin(r))>{low, high};
}
template <typename R, typename L = less, typename P = identity>
void sort(R&& r, L is_less = {}, P by = {}) {
  std::sort(std::begin(r), std::end(r), [&](const auto& a, const auto& b) {
    return is_less(std::invoke(by, a), std::invoke(by, b));
  });
}
template <typename R, typename L = less, typename P = identity>
void stable_sort(R&& r, L is_less = {}, P by = {}) {
  std::stable_sort(std::begin(r), std::end(r),
                   [&](const auto& a, const auto& b) {
                     return is_less(std::invoke(by, a), std::invoke(by, b));
                   });
}

}  // namespace ranges
}  // namespace std

#endif  // _LIBCPP_VERSION

#endif  // LOCUS_WEB_WASM_LIBCXX_H_

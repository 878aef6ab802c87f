// Random numbers that are the same on every machine.
#ifndef LOCUS_LAB_TASKS_RANDOM_H_
#define LOCUS_LAB_TASKS_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <string_view>

namespace locus::lab {

// SplitMix64: a counter, mixed. Steele et al., "Fast splittable pseudorandom
// number generators" (2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A stream for a name and some numbers; any difference gives a different
  // stream.
  Random(std::string_view name, std::initializer_list<uint64_t> numbers) {
    for (const char c : name) Absorb(static_cast<unsigned char>(c));
    for (const uint64_t n : numbers) Absorb(n);
  }

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. n - 1. The modulo bias is n / 2^64.
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  // lo .. hi, inclusive.
  int64_t Between(int64_t lo, int64_t hi) { return lo + Below(hi - lo + 1); }
  // [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Box-Muller, using one of the two values.
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

 private:
  void Absorb(uint64_t number) {
    state_ ^= number;
    state_ = Next();
  }

  uint64_t state_ = 0;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TASKS_RANDOM_H_

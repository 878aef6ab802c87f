// Random choices for calls, all from one seed.
#ifndef LOCUS_TESTS_FUZZ_RANDOM_H_
#define LOCUS_TESTS_FUZZ_RANDOM_H_

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace locus::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // In [lo, hi].
  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(engine_);
  }
  double Real(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(engine_);
  }
  // True once in `of` times.
  bool OneIn(int64_t of) { return Draw(1, of) == 1; }
  template <typename T>
  T Pick(std::initializer_list<T> list) {
    return list.begin()[Draw(0, static_cast<int64_t>(list.size()) - 1)];
  }
  uint64_t Seed() { return engine_(); }
  std::vector<double> Reals(int64_t count, double lo, double hi) {
    std::vector<double> out;
    for (int64_t n = 0; n < count; ++n) out.push_back(Real(lo, hi));
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_RANDOM_H_

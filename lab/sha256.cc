#include "lab/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace locus::lab {
namespace {

using Word = uint32_t;
using Hash = std::array<Word, 8>;

// The standard takes its constants from fractional parts of square roots (the
// start) and cube roots (the rounds) of the first primes. The 32 bits that are
// needed are well inside what a long double holds.
Word Fraction(long double x) {
  return static_cast<Word>((x - std::floor(x)) * 0x1p32L);
}

struct Constants {
  Hash start = {};
  std::array<Word, 64> round = {};

  Constants() {
    int prime = 2;
    for (size_t i = 0; i < round.size(); ++i) {
      const auto p = static_cast<long double>(prime);
      if (i < start.size()) start[i] = Fraction(std::sqrt(p));
      round[i] = Fraction(std::cbrt(p));
      const auto composite = [](int n) {
        for (int d = 2; d * d <= n; ++d) {
          if (n % d == 0) return true;
        }
        return false;
      };
      do ++prime;
      while (composite(prime));
    }
  }
};

Word BigEndian(const unsigned char* p) {
  return Word{p[0]} << 24 | Word{p[1]} << 16 | Word{p[2]} << 8 | Word{p[3]};
}

// One block of 64 bytes (FIPS 180-4, section 6.2.2).
void Absorb(const Constants& constants, const unsigned char* block,
            Hash& hash) {
  std::array<Word, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const Word a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + w[t - 7] +
           (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t t = 0; t < 64; ++t) {
    const Word t1 = h +
                    (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                    ((e & f) ^ (~e & g)) + constants.round[t] + w[t];
    const Word t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                    ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const Hash step = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] += step[i];
}

}  // namespace

std::string Sha256(std::string_view bytes) {
  static const Constants constants;
  Hash hash = constants.start;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) {
    Absorb(constants, data + at, hash);
  }
  // The rest, a one bit, zeros, and the number of bits, in one or two blocks.
  std::array<unsigned char, 128> tail = {};
  const size_t rest = bytes.size() - at;
  for (size_t i = 0; i < rest; ++i) tail[i] = data[at + i];
  tail[rest] = 0x80;
  const size_t end = rest < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; ++i) {
    tail[end - 1 - i] = static_cast<unsigned char>(bytes.size() * 8 >> 8 * i);
  }
  for (size_t block = 0; block < end; block += 64) {
    Absorb(constants, tail.data() + block, hash);
  }
  std::string text;
  for (const Word word : hash) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace locus::lab

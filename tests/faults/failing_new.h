// Simulated memory exhaustion: the n-th allocation of a call fails, for every
// n.
//
// failing_new_test.cc replaces the global operator new, which all allocations
// of the library use, on every thread.
#ifndef LOCUS_TESTS_FAULTS_FAILING_NEW_H_
#define LOCUS_TESTS_FAULTS_FAILING_NEW_H_

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <vector>

#include "locus/error.h"
#include "locus/tensor.h"

namespace locus::testing {

// During its lifetime, allocation n of the process, counted from 0, fails: only
// that one, or with all later ones.
class FailingNew {
 public:
  enum class Mode : uint8_t { kOnce, kFromThenOn };
  FailingNew(int64_t n, Mode mode);
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  ~FailingNew();
  // Whether an allocation has failed.
  static bool Failed();
};

// How a call with a failing allocation ended.
enum class Outcome : uint8_t { kReturned, kThrew, kThrewSomethingElse };

template <typename F>
Outcome Try(const F& f) {
  try {
    f();
    return Outcome::kReturned;
  } catch (const std::bad_alloc&) {
    return Outcome::kThrew;
  } catch (const Error&) {
    return Outcome::kThrew;
  } catch (...) {
    return Outcome::kThrewSomethingElse;
  }
}

inline bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const auto bytes =
      static_cast<size_t>(a.NumElements() * DTypeBytes(a.dtype()));
  return bytes == 0 || std::memcmp(a.Raw(), b.Raw(), bytes) == 0;
}

inline bool SameBits(const std::vector<Tensor>& a,
                     const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t n = 0; n < a.size(); ++n) {
    if (!SameBits(a[n], b[n])) return false;
  }
  return true;
}

// For every n, until a call has no allocation n: runs attempt(), which returns
// an Outcome, with allocation n failing, and then check(outcome) with working
// allocations. Returns the number of allocations.
template <typename Attempt, typename Check>
int64_t ForEveryAllocation(const Attempt& attempt, const Check& check) {
  int64_t allocations = 0;
  for (const auto mode :
       {FailingNew::Mode::kOnce, FailingNew::Mode::kFromThenOn}) {
    for (int64_t n = 0;; ++n) {
      Outcome outcome = Outcome::kReturned;
      bool failed = false;
      {
        const FailingNew failing(n, mode);
        outcome = attempt();
        failed = FailingNew::Failed();
      }
      SCOPED_TRACE(::testing::Message()
                   << "allocation " << n << " fails"
                   << (mode == FailingNew::Mode::kOnce ? "" : " for good"));
      EXPECT_NE(outcome, Outcome::kThrewSomethingElse);
      if (!failed) {
        EXPECT_EQ(outcome, Outcome::kReturned);
      }
      check(outcome);
      if (::testing::Test::HasFailure()) return allocations;
      if (!failed) break;
      allocations = std::max(allocations, n + 1);
    }
  }
  return allocations;
}

// The same for a call without side effects that returns tensors: it throws or
// returns the right bits, and afterwards it returns the right bits.
template <typename Call>
void ExpectSurvivesEveryAllocation(const Call& call) {
  const std::vector<Tensor> expected = call();
  std::vector<Tensor> got;
  const int64_t allocations = ForEveryAllocation(
      [&] { return Try([&] { got = call(); }); },
      [&](Outcome outcome) {
        if (outcome == Outcome::kReturned) {
          EXPECT_TRUE(SameBits(got, expected)) << "it returned other bits";
        }
        EXPECT_TRUE(SameBits(call(), expected)) << "the next call";
      });
  EXPECT_GT(allocations, 0);
}

// The same for a call that writes into its caller's tensors: it throws before
// writing the first byte, or writes the right bits.
template <typename Call>
void ExpectAllocatesBeforeItWrites(const std::vector<Tensor>& outputs,
                                   const Call& call) {
  using Bytes = std::vector<unsigned char>;
  const auto bytes = [](const Tensor& t) {
    return static_cast<size_t>(t.NumElements() * DTypeBytes(t.dtype()));
  };
  const auto fill = [&] {
    for (const Tensor& t : outputs) {
      std::memset(const_cast<void*>(t.Raw()), 0xA5, bytes(t));
    }
  };
  const auto read = [&] {
    std::vector<Bytes> all;
    for (const Tensor& t : outputs) {
      const auto* from = static_cast<const unsigned char*>(t.Raw());
      all.emplace_back(from, from + bytes(t));
    }
    return all;
  };
  fill();
  const std::vector<Bytes> untouched = read();
  call();
  const std::vector<Bytes> expected = read();
  ASSERT_NE(expected, untouched);
  fill();
  const int64_t allocations = ForEveryAllocation(
      [&] { return Try(call); },
      [&](Outcome outcome) {
        if (outcome == Outcome::kReturned) {
          EXPECT_EQ(read(), expected) << "it returned other bits";
        } else {
          EXPECT_EQ(read(), untouched) << "it had begun to write";
        }
        call();
        EXPECT_EQ(read(), expected) << "the next call";
        fill();
      });
  EXPECT_GT(allocations, 0);
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FAULTS_FAILING_NEW_H_

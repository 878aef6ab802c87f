// The processes that train one model together, each on a part of every batch.
//
// Ranks work in lockstep: an error that one of them finds is thrown on all.
#ifndef LOCUS_LAB_RANKS_RANKS_H_
#define LOCUS_LAB_RANKS_RANKS_H_

#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace locus::lab {

// Communication has failed: the ranks can do no more work together.
class LostRanks : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank could not do its part, "rank 2: ...": not an Error of the task
// itself.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every function is collective: all ranks call it, in the same order. It throws
// LostRanks if one of them is gone.
class Ranks {
 public:
  Ranks() = default;
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool first() const { return rank() == 0; }

  // Sums the ranks' numbers in place: bitwise equal on every rank, and from run
  // to run.
  virtual void Sum(std::span<float> values) const = 0;
  virtual void Sum(std::span<double> values) const = 0;
  // The strings of all ranks, indexed by rank.
  virtual std::vector<std::string> Gather(std::string_view mine) const = 0;

  // Whether `mine` holds on any rank.
  bool Any(bool mine) const;
  // The text of the first rank; that of other ranks is ignored.
  std::string FromFirst(std::string_view text) const;
};

// A single process.
const Ranks& SingleProcess();

// Elements first .. first + count - 1 of `total`, divided among the ranks as
// evenly as possible, in their order.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};
Share ShareOf(const Ranks& ranks, int64_t total);

// Work of this rank only, which makes no collective call and may throw.
class Attempt {
 public:
  Attempt() = default;
  template <typename Work>
  explicit Attempt(const Work& work) {
    try {
      work();
    } catch (const LostRanks&) {
      throw;
    } catch (...) {
      wrong_ = std::current_exception();
    }
  }

  bool failed() const { return wrong_ != nullptr; }
  // Throws the exception of the work, if any.
  void Rethrow() const {
    if (wrong_) std::rethrow_exception(wrong_);
  }
  // If it failed on some rank, throws on every rank: the exception of the
  // rank's own work, or else RankFailed.
  void Settle(const Ranks& ranks, bool failed_on_some) const;

 private:
  std::exception_ptr wrong_;
};

// Work that each rank does by itself; fails on all ranks if it fails on one.
template <typename Work>
void OnAllRanks(const Ranks& ranks, const Work& work) {
  const Attempt attempt(work);
  attempt.Settle(ranks, ranks.Any(attempt.failed()));
}

// Work of the first rank that returns a number; returns it on every rank.
template <typename Work>
int OnFirstRank(const Ranks& ranks, const Work& work) {
  int number = 0;
  OnAllRanks(ranks, [&] {
    if (ranks.first()) number = work();
  });
  return std::stoi(ranks.FromFirst(std::to_string(number)));
}

}  // namespace locus::lab

#endif  // LOCUS_LAB_RANKS_RANKS_H_

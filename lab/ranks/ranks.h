// The processes that train one model together, each a part of every batch.
//
// Ranks work in step: what one of them finds wrong, all of them throw.
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

// The ranks can no longer talk: no work is left that they could do together.
class LostRanks : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank could not do its part, "rank 2: ...": it is no Error of the
// task at hand.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every call is collective: all ranks make it, in the same order. It throws
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

  // Adds up the ranks' numbers in place: the same bits on every rank, and from
  // run to run.
  virtual void Sum(std::span<float> values) const = 0;
  virtual void Sum(std::span<double> values) const = 0;
  // What each rank brings, by rank.
  virtual std::vector<std::string> Gather(std::string_view mine) const = 0;

  // Whether it holds on some rank.
  bool Any(bool mine) const;
  // What the first rank brings; what others give is passed over.
  std::string FromFirst(std::string_view text) const;
};

// One process by itself.
const Ranks& SingleProcess();

// Elements first .. first + count - 1 of `total`, dealt to the ranks as evenly
// as can be, in their order.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};
Share ShareOf(const Ranks& ranks, int64_t total);

// Work of this rank alone, which makes no collective call and may throw.
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
  // Throws what the work threw.
  void Rethrow() const {
    if (wrong_) std::rethrow_exception(wrong_);
  }
  // If it failed on some rank, throws on every one: what the rank's own work
  // threw, or else RankFailed.
  void Settle(const Ranks& ranks, bool failed_on_some) const;

 private:
  std::exception_ptr wrong_;
};

// Work that each rank does by itself, agreed to have been done by all.
template <typename Work>
void OnAllRanks(const Ranks& ranks, const Work& work) {
  const Attempt attempt(work);
  attempt.Settle(ranks, ranks.Any(attempt.failed()));
}

// Work of the first rank, which returns a number: that number, on every rank.
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

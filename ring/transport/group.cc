#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "locus/error.h"
#include "locus/ring_group.h"
#include "ring/transport/transfer.h"

namespace locus::ring {
namespace {

// MPI counts are int.
int Count(size_t n) {
  if (n > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw Error(fmt::format("ranks exchange at most {} numbers at once, got {}",
                            std::numeric_limits<int>::max(), n));
  }
  return static_cast<int>(n);
}

// Sizes of the parts of an exchange, and their offsets.
struct Parts {
  explicit Parts(std::vector<int> given) : sizes(std::move(given)) {
    starts.resize(sizes.size());
    std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), 0);
  }
  // `count` elements, divided as evenly as possible among `ranks`.
  static Parts Even(size_t count, int ranks) {
    std::vector<int> sizes;
    const int all = Count(count);
    for (int r = 0; r < ranks; ++r) {
      sizes.push_back(all / ranks + (r < all % ranks ? 1 : 0));
    }
    return Parts(std::move(sizes));
  }
  std::vector<int> sizes;
  std::vector<int> starts;
};

// Each rank sums one part of the numbers over all ranks, then every rank
// receives all parts: the traffic is twice the numbers, for any number of
// ranks.
template <typename T>
void SumParts(const Group& group, MPI_Datatype type, std::span<T> values) {
  struct Memory {
    explicit Memory(Parts even) : parts(std::move(even)) {}
    Parts parts;       // of `mine`
    Parts pieces{{}};  // of `others`: my part from each rank
    std::vector<T> mine, others;
    std::vector<T> sum;
  };
  const auto memory =
      std::make_shared<Memory>(Parts::Even(values.size(), group.size()));
  Memory& m = *memory;
  const int own = m.parts.sizes[static_cast<size_t>(group.rank())];
  m.pieces = Parts(std::vector<int>(static_cast<size_t>(group.size()), own));
  m.mine.assign(values.begin(), values.end());
  m.others.resize(static_cast<size_t>(own) * static_cast<size_t>(group.size()));
  Transfer deal(memory);
  CheckMpi(
      MPI_Ialltoallv(m.mine.data(), m.parts.sizes.data(), m.parts.starts.data(),
                     type, m.others.data(), m.pieces.sizes.data(),
                     m.pieces.starts.data(), type, group.comm(), deal.Next()),
      "a sum over ranks");
  Wait(deal, group, "a sum over ranks");
  m.sum.resize(static_cast<size_t>(own));
  for (size_t n = 0; n < m.sum.size(); ++n) {
    double sum = 0.0;
    for (size_t at = n; at < m.others.size(); at += m.sum.size()) {
      sum += static_cast<double>(m.others[at]);
    }
    m.sum[n] = static_cast<T>(sum);
  }
  Transfer share(memory);
  CheckMpi(MPI_Iallgatherv(m.sum.data(), own, type, m.mine.data(),
                           m.parts.sizes.data(), m.parts.starts.data(), type,
                           group.comm(), share.Next()),
           "a sum over ranks");
  Wait(share, group, "a sum over ranks");
  std::ranges::copy(m.mine, values.begin());
}

}  // namespace

Group::Group(MPI_Comm comm, double deadline_seconds)
    : comm_(comm), deadline_seconds_(deadline_seconds) {
  int ready = 0, over = 0;
  MPI_Initialized(&ready);
  MPI_Finalized(&over);
  if (ready == 0 || over != 0) {
    throw Error("MPI must be initialised before ranks can work together");
  }
  if (!(deadline_seconds > 0.0)) {
    throw Error(
        fmt::format("a deadline must be positive, got {} s", deadline_seconds));
  }
  MPI_Comm_get_errhandler(comm_, &previous_);
  CheckMpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "a group");
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

Group::~Group() {
  MPI_Comm_set_errhandler(comm_, previous_);
  MPI_Errhandler_free(&previous_);
}

void Group::Barrier() const {
  Transfer all(nullptr);
  CheckMpi(MPI_Ibarrier(comm_, all.Next()), "a barrier");
  Wait(all, *this, "the other ranks at a barrier");
}

std::vector<std::string> Group::Gather(std::string_view mine) const {
  struct Memory {
    int length = 0;
    std::string mine;
    std::vector<int> lengths;
    Parts parts{{}};
    std::string all;
  };
  const auto memory = std::make_shared<Memory>();
  memory->mine = mine;
  memory->length = Count(mine.size());
  memory->lengths.resize(static_cast<size_t>(size_));
  constexpr std::string_view kWhat = "the other ranks to say what they bring";
  Transfer lengths(memory);
  CheckMpi(MPI_Iallgather(&memory->length, 1, MPI_INT, memory->lengths.data(),
                          1, MPI_INT, comm_, lengths.Next()),
           "gathering");
  Wait(lengths, *this, kWhat);
  memory->parts = Parts(memory->lengths);
  memory->all.resize(static_cast<size_t>(memory->parts.starts.back()) +
                     static_cast<size_t>(memory->parts.sizes.back()));
  Transfer texts(memory);
  CheckMpi(MPI_Iallgatherv(memory->mine.data(), memory->length, MPI_CHAR,
                           memory->all.data(), memory->parts.sizes.data(),
                           memory->parts.starts.data(), MPI_CHAR, comm_,
                           texts.Next()),
           "gathering");
  Wait(texts, *this, kWhat);
  std::vector<std::string> gathered;
  for (size_t r = 0; r < memory->lengths.size(); ++r) {
    gathered.push_back(
        memory->all.substr(static_cast<size_t>(memory->parts.starts[r]),
                           static_cast<size_t>(memory->lengths[r])));
  }
  return gathered;
}

void Group::Sum(std::span<float> values) const {
  SumParts(*this, MPI_FLOAT, values);
}

void Group::Sum(std::span<double> values) const {
  SumParts(*this, MPI_DOUBLE, values);
}

}  // namespace locus::ring

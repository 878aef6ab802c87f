#include "lab/ranks/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace locus::lab {
namespace {

class One : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Sum(std::span<float> /*values*/) const override {}
  void Sum(std::span<double> /*values*/) const override {}
  std::vector<std::string> Gather(std::string_view mine) const override {
    return {std::string(mine)};
  }
};

std::string Sentence(const Attempt& attempt) {
  try {
    attempt.Rethrow();
  } catch (const std::bad_alloc&) {
    return "not enough memory for its part";
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

bool Ranks::Any(bool mine) const {
  double count = mine ? 1.0 : 0.0;
  Sum(std::span(&count, 1));
  return count > 0.0;
}

std::string Ranks::FromFirst(std::string_view text) const {
  return Gather(first() ? text : std::string_view()).front();
}

const Ranks& SingleProcess() {
  static const One one;
  return one;
}

Share ShareOf(const Ranks& ranks, int64_t total) {
  const int64_t each = total / ranks.size(), left = total % ranks.size();
  return {.first = each * ranks.rank() + std::min<int64_t>(ranks.rank(), left),
          .count = each + (ranks.rank() < left ? 1 : 0)};
}

void Attempt::Settle(const Ranks& ranks, bool failed_on_some) const {
  if (!failed_on_some) return;
  const std::vector<std::string> said = ranks.Gather(Sentence(*this));
  Rethrow();
  const auto at = std::ranges::find_if(
      said, [](const std::string& text) { return !text.empty(); });
  throw RankFailed(fmt::format("rank {}: {}", at - said.begin(),
                               at == said.end() ? "failed" : *at));
}

}  // namespace locus::lab

#include "ring/agreement/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "locus/error.h"

namespace locus::ring {
namespace {

// Values contain no line breaks; the error may, so it comes last.
std::string Write(const std::string& error, const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) text += field.value + '\n';
  return text + error;
}

struct Said {
  std::vector<std::string> values;
  std::string error;
};

Said Read(const std::string& text, size_t count) {
  std::istringstream lines(text);
  Said said;
  for (std::string line; said.values.size() < count;) {
    if (!std::getline(lines, line)) {
      throw Error("ranks run different versions of Locus");
    }
    said.values.push_back(line);
  }
  said.error.assign(std::istreambuf_iterator<char>(lines), {});
  return said;
}

}  // namespace

std::vector<Field> Agree(const Group& group, const std::string& error,
                         const std::vector<Field>& mine) {
  std::vector<Said> ranks;
  for (const std::string& text : group.Gather(Write(error, mine))) {
    ranks.push_back(Read(text, mine.size()));
  }
  if (std::ranges::all_of(ranks, [&](const Said& said) {
        return !error.empty() && said.error == error;
      })) {
    throw Error(error);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].error.empty()) {
      throw Error(fmt::format("rank {}: {}", r, ranks[r].error));
    }
  }
  std::vector<Field> agreed = mine;
  for (size_t n = 0; n < mine.size(); ++n) {
    size_t first = 0;
    while (first < ranks.size() && ranks[first].values[n].empty()) ++first;
    if (first == ranks.size()) continue;
    const std::string& value = ranks[first].values[n];
    for (size_t r = first + 1; r < ranks.size(); ++r) {
      const std::string& other = ranks[r].values[n];
      if (other.empty() || other == value) continue;
      throw Error(
          fmt::format("every rank must bring the same {}: rank {} has {} and "
                      "rank {} has {}",
                      mine[n].label, first, value, r, other));
    }
    agreed[n].value = value;
  }
  return agreed;
}

std::vector<std::vector<int64_t>> GatherNumbers(const Group& group,
                                                std::span<const int64_t> mine) {
  std::vector<std::vector<int64_t>> ranks;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()),
                               mine.size_bytes());
  for (const std::string& text : group.Gather(bytes)) {
    std::vector<int64_t> numbers(text.size() / sizeof(int64_t));
    std::memcpy(numbers.data(), text.data(), text.size());
    ranks.push_back(std::move(numbers));
  }
  return ranks;
}

}  // namespace locus::ring

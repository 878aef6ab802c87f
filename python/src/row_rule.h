// Which row of a table an offset m - n takes, as a user of Python says it.
#ifndef LOCUS_PYTHON_SRC_ROW_RULE_H_
#define LOCUS_PYTHON_SRC_ROW_RULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "locus/terms.h"

namespace locus::python {

// One of three ways:
//   first_offset            row b belongs to the offset first_offset + b
//   first_offset, buckets   the offset first_offset + i takes row buckets[i]
//   offsets                 row b serves offsets[b] up to offsets[b + 1] - 1
// Without any of them an odd number of rows is centred on offset 0. `clip`:
// offsets beyond either end take the row of that end, else they are an error.
struct RowRule {
  std::optional<int64_t> first_offset = {};
  std::vector<int64_t> buckets = {};
  std::vector<int64_t> offsets = {};
  bool clip = true;
};

// The map of a table with so many rows. Throws Error, which calls the table
// `name`, if the rule does not fit it.
BucketMap MapOf(const std::string& name, int64_t rows, const RowRule& rule);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ROW_RULE_H_

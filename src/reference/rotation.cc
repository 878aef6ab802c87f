#include <vector>

#include "locus/reference.h"

namespace locus::reference {

void RotateRow(const Rotation& rotation, int64_t position, double* row,
               int64_t kv_head) {
  const auto pairs = static_cast<size_t>(rotation.NumPairs());
  std::vector<double> cos(pairs), sin(pairs);
  rotation.CosSin(position, cos.data(), sin.data(), kv_head);
  for (size_t p = 0; p < pairs; ++p) {
    double& a = row[rotation.FirstOfPair(static_cast<int64_t>(p))];
    double& b = row[rotation.SecondOfPair(static_cast<int64_t>(p))];
    const double rotated = a * cos[p] - b * sin[p];
    b = a * sin[p] + b * cos[p];
    a = rotated;
  }
}

}  // namespace locus::reference

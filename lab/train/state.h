// A run on disk: everything that its future depends on, guarded by a checksum.
#ifndef LOCUS_LAB_TRAIN_STATE_H_
#define LOCUS_LAB_TRAIN_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace locus::lab {

struct SavedState {
  std::string spec = {};  // in words, to be compared
  int64_t step = 0;
  bool extended = false;
  int64_t train_length = 0;
  std::map<std::string, std::string> options = {};
  int64_t optimiser_steps = 0;
  std::vector<float> parameters = {};
  std::vector<float> mean = {};
  std::vector<float> square = {};
};

std::string Encode(const SavedState& state);

// Throws Error if the bytes are not what Encode gave.
SavedState Decode(std::string_view bytes);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_STATE_H_

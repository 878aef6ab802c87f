// A positional encoding inside a model: its form, its parameters in every
// layer, and how they start.
#ifndef LOCUS_LAB_POSITION_H_
#define LOCUS_LAB_POSITION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/attention.h"
#include "lab/parameters.h"
#include "lab/task.h"
#include "locus/encoding.h"

namespace locus::lab {

struct PositionConfig {
  std::string encoding = "none";
  std::map<std::string, std::string> options = {};
  ModelKind kind = ModelKind::kDecoder;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t head_dim = 32;
  int64_t train_length = 64;
};

class Position {
 public:
  // Throws Error if there is no such encoding, or none that such a model takes.
  explicit Position(const PositionConfig& config);

  // The encoding adds to the input, before the first layer; otherwise it acts
  // inside attention.
  bool in_input() const { return in_input_; }

  // Layers have parameters of their own.
  bool differs_by_layer() const { return !shared_ && !form_->Params().empty(); }

  // The trainable parameters of all layers.
  std::vector<ParameterInfo> Parameters() const;

  // The encoding of a layer for sequences of `length`. Encodings of the input
  // have the same values in every layer.
  EncodingValues Values(const ParameterSet& parameters, int64_t layer,
                        int64_t length) const;

  // Brings parameters back into their domain after an optimiser's step.
  void Project(const ParameterSet& parameters) const;

  // The library's own sentence, if the encoding does not serve this length.
  std::optional<std::string> Refusal(const ParameterSet& parameters,
                                     int64_t length) const;

 private:
  std::string ParameterName(int64_t layer, const std::string& name) const;
  // Transformer-XL trains a projection of sinusoids, not the rows themselves.
  bool projects_sinusoids() const {
    return config_.encoding == "transformer-xl";
  }

  PositionConfig config_;
  bool in_input_ = false;
  bool shared_ = false;  // by all layers
  std::shared_ptr<const Encoding> form_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_POSITION_H_

// A positional encoding within a model: its form, its parameters in every
// layer, and their initial values.
#ifndef LOCUS_LAB_TRAIN_POSITION_H_
#define LOCUS_LAB_TRAIN_POSITION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/tasks/task.h"
#include "lab/train/attention.h"
#include "lab/train/parameters.h"
#include "lab/train/scripted.h"
#include "locus/descriptor.h"

namespace locus::lab {

struct PositionConfig {
  std::string encoding = "none";  // "rope", "rope{base=100}", or a file's name
  std::string file = {};          // written by Python; empty: one of the list
  std::map<std::string, std::string> options = {};  // over the variant's
  ModelKind kind = ModelKind::kDecoder;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t head_dim = 32;
  int64_t train_length = 64;
};

class Position {
 public:
  // Throws Error if there is no such encoding, or if the model cannot use it.
  explicit Position(const PositionConfig& config);

  // Whether the encoding is added to the input before the first layer;
  // otherwise it acts within attention.
  bool in_input() const { return in_input_; }

  // Whether each layer has its own parameters.
  bool differs_by_layer() const { return !shared_ && !trained_.empty(); }

  // The example of the descriptor that has this form: the sizes of the model,
  // and every option that differs from the descriptor's default.
  ExampleConfig Example() const;

  // SHA-256 of the file of an encoding written in Python; otherwise empty.
  std::string FileSum() const { return scripted_ ? scripted_->sha256() : ""; }

  // The trainable parameters of all layers.
  std::vector<ParameterInfo> Parameters() const;

  // The encoding of a layer for sequences of `length`. Encodings of the input
  // have the same values in every layer.
  EncodingValues Values(const ParameterSet& parameters, int64_t layer,
                        int64_t length) const;

  // Projects parameters back into their domain after an optimiser step.
  void Project(const ParameterSet& parameters) const;

  // The library's error message, if the encoding does not support this length.
  std::optional<std::string> Refusal(const ParameterSet& parameters,
                                     int64_t length) const;

 private:
  // A parameter that every layer has, or that all of them share.
  struct Trained {
    ParameterInfo info = {};  // its name without the layer's
    double lowest = 0.0;      // bounds for the optimiser's steps
    double highest = 0.0;
  };

  void FromList(const PositionConfig& config);
  void FromFile(const PositionConfig& config);
  std::unique_ptr<Encoding> MakeForm(int64_t head_dim) const;
  const ParamTraining& TrainingOf(const std::string& name) const;
  std::string ParameterName(int64_t layer, const std::string& name) const;
  int64_t NumCopies() const { return shared_ ? 1 : config_.layers; }

  PositionConfig config_;
  bool in_input_ = false;
  bool shared_ = false;  // by all layers
  std::vector<Trained> trained_;
  // Either one of the list, or a function written by Python.
  const EncodingInfo* info_ = nullptr;
  std::shared_ptr<const Encoding> form_;
  std::shared_ptr<const ScriptedEncoding> scripted_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_POSITION_H_

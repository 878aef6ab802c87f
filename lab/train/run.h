// One run of the lab: a small transformer with one positional encoding, trained
// on one task at one length and evaluated at many.
//
// Runs of the same task and seed see the same data in the same order and have
// the same initial values in everything but the encoding. A run depends only on
// its spec and seed: not on the time, on other runs, or on being saved and
// loaded.
//
// Several ranks may share a run: each takes a part of every batch, and all have
// the same weights. The last bits then depend on the number of ranks as well.
#ifndef LOCUS_LAB_TRAIN_RUN_H_
#define LOCUS_LAB_TRAIN_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/ranks/ranks.h"
#include "lab/tasks/task.h"
#include "locus/descriptor.h"
#include "locus/error.h"

namespace locus::lab {

enum class AttentionPath : uint8_t { kFused, kMaterialised };

struct RunSpec {
  std::string encoding = "none";  // "rope", "rope{base=100}", a file's name
  std::string file = {};          // an encoding written by Python, if any
  std::map<std::string, std::string> options = {};  // the encoding's own
  std::string task = "text";                        // a name of Tasks()
  ModelKind kind = ModelKind::kDecoder;
  AttentionPath path = AttentionPath::kFused;
  int64_t train_length = 64;
  int64_t batch = 32;
  int64_t steps = 300;
  int64_t layers = 2;
  int64_t model_dim = 128;
  int64_t heads = 4;
  double learning_rate = 3e-3;  // the highest: after warming up, before falling
  uint64_t seed = 1;
  int threads = 1;
};

// The spec of a task with its defaults (lab/tasks/task.h).
RunSpec DefaultSpec(std::string_view task);

// Sums over the scored tokens of several consecutive sequences.
struct BlockScore {
  double loss = 0;   // nats
  double exact = 0;  // tokens predicted exactly
  double tokens = 0;
};

// The scores of a model at one length. `refused` is the error of an encoding
// that does not support that length; the numbers are then absent.
struct Evaluation {
  int64_t length = 0;
  int64_t tokens = 0;   // scored
  double loss = 0;      // nats per token
  double accuracy = 0;  // share of tokens predicted exactly
  // The same sequences in the same blocks, at most 32, for every encoding and
  // seed: intervals are computed from these.
  std::vector<BlockScore> blocks = {};
  std::optional<std::string> refused = {};
};

// A small matrix to draw.
struct PictureData {
  std::string kind = {};  // "table", "bias", "embedding", "attention"
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<double> x_values = {};
  std::vector<double> y_values = {};
  std::vector<std::vector<double>> values = {};  // [y][x]
};

// The trained encoding of a layer, and the example of its descriptor that has
// the same form.
struct TrainedEncoding {
  ExampleConfig example = {};
  std::shared_ptr<const Encoding> encoding = {};
};

// The training loss is no longer finite.
class DivergedError : public Error {
 public:
  using Error::Error;
};

class Run {
 public:
  // Throws Error if the spec is not supported. The task "text" reads the
  // corpus; it and the ranks must outlive the run.
  Run(const RunSpec& spec, const Corpus* corpus,
      const Ranks& ranks = SingleProcess());
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const RunSpec& spec() const;
  int64_t step() const;        // steps taken
  int64_t parameters() const;  // trainable numbers, with the encoding's

  // Takes one step, together with the other ranks; returns its training loss in
  // nats per token, for the whole batch. Throws DivergedError.
  double Step();

  // Scores sequences of `length` that training never sees: the same ones for
  // every encoding and seed, with about `tokens` tokens. Collective, and
  // bitwise the same for any number of ranks. Sequences of a synthetic task may
  // start at `first` instead of 0.
  Evaluation Evaluate(int64_t length, int64_t tokens, int64_t first = 0) const;

  // Everything that the rest of the run depends on: weights, optimiser state,
  // step, random state. Load throws Error unless the bytes are such a state of
  // the same spec.
  std::string Save() const;
  void Load(std::string_view state);

  // Changes the positional encoding's options from here on, keeping the
  // weights: for RoPE scaled to a longer context ({"scaling": "yarn", "factor":
  // "4"}), with or without further steps, which then train at `train_length`.
  void Extend(const std::map<std::string, std::string>& options,
              int64_t train_length);

  // The current tables and biases of the encoding, and the attention of each
  // layer and head on one shared input of `length`.
  std::vector<PictureData> Pictures(int64_t length) const;

  // The current positional encoding of a layer; its parameters share the run's
  // memory.
  TrainedEncoding Trained(int64_t layer) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_RUN_H_

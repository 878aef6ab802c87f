// The interface of an encoding, and the list of all of them.
#ifndef LOCUS_ENCODING_H_
#define LOCUS_ENCODING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {

// What Lower returns. The tensors inside share or own every buffer they need,
// so a Lowered outlives the encoding that made it.
struct Lowered {
  Terms terms = {};
};

// A trainable parameter, or the gradient of one.
struct Param {
  std::string name = {};
  Tensor value = {};
};
using ParamGrads = std::vector<Param>;

// What AttentionBackward (attention.h) returns for an encoding.
struct EncodingGrads {
  Tensor d_q = {};  // in the shapes and types of q, k and v
  Tensor d_k = {};
  Tensor d_v = {};
  ParamGrads params = {};  // as Encoding::Params(), f64; empty: none
};

// A positional encoding: parameters, and how they become terms.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // The name in the list, such as "rope".
  virtual std::string_view Name() const = 0;

  // The terms for a call of this shape. Throws Error if the encoding cannot
  // serve it (too few rows, wrong head count, ...).
  virtual Lowered Lower(const Shape& shape) const = 0;

  // The trainable parameters, in a fixed order. Tensors are shared, not copied.
  virtual std::vector<Param> Params() const { return {}; }

  // The same encoding with other parameter values, in the order of Params().
  virtual std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const;

  // Gradients of the parameters, from the gradients of what Lower(shape) gave:
  // same names, order and sizes as Params(), in f64.
  virtual ParamGrads PullBack(const Shape& shape, const TermGrads& grads) const;

  // For encodings of the input: the rows E[pos], [n, model_dim] f64, that are
  // added to x. Other encodings throw Error.
  virtual Tensor Embed(std::span<const int64_t> positions) const;
};

// --------------------------------------------------------------- the list

enum class Reference : uint8_t { kNone, kAbsolute, kRelative };
enum class Extrapolates : uint8_t { kNo, kPartly, kYes };

// What picture shows an encoding best.
enum class Picture : uint8_t {
  kEmbedding,  // position x dimension heat map
  kBias,       // bias against offset, a curve a head
  kRotation,   // a random query, rotated by position
  kScore,      // mean score against offset
};

// Settings for building an example of an encoding by name. `options` are the
// encoding's own; one that it does not know is an error.
struct ExampleConfig {
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t length = 128;  // trained length, for encodings that have one
  uint64_t seed = 1;     // of random tables
  std::map<std::string, std::string> options = {};
};

// One row of the list.
struct EncodingInfo {
  std::string_view name;        // "rope"
  std::string_view class_name;  // "Rope"
  std::string_view title;       // "Rotary position embedding (RoPE)"
  std::string_view formula;     // one line
  std::string_view paper;       // authors, title, year
  std::string_view models;      // who uses it
  Reference reference = Reference::kNone;
  bool trainable = false;
  Extrapolates extrapolates = Extrapolates::kNo;
  std::string_view extrapolation_note;
  Picture picture = Picture::kScore;
  std::string_view options;  // "base, layout, scaling, ..." for the example
  // A ready-made instance: formulas with their usual constants, tables random.
  std::unique_ptr<Encoding> (*example)(const ExampleConfig& config) = nullptr;
};

// Every encoding, in the order of src/encodings/encodings.inc.
std::span<const EncodingInfo> Encodings();

// The row of a name. Throws Error with the known names, or with the reason why
// the scheme is outside (CoPE).
const EncodingInfo& FindEncoding(std::string_view name);

}  // namespace locus

#endif  // LOCUS_ENCODING_H_

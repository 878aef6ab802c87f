// The descriptor of an encoding, and the list of all of them.
//
// One EncodingInfo stands at the end of each encoding's source file. The
// command line's options, the Python classes with their signatures and
// docstrings, the modules for PyTorch, the lab's starting values and rates, and
// the rows of the documents are made from it.
#ifndef LOCUS_DESCRIPTOR_H_
#define LOCUS_DESCRIPTOR_H_

#include <any>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "locus/api.h"
#include "locus/encoding.h"
#include "locus/tensor.h"

namespace LOCUS_API locus {

// --------------------------------------------------------------- fields

enum class FieldType : uint8_t {
  kInt,     // int64_t
  kReal,    // double
  kFlag,    // bool
  kChoice,  // one of few words; the n-th stands for enumerator n
  kInts,    // std::vector<int64_t>, as many as the shape says
  kReals,   // std::vector<double>
  kTable,   // Tensor
  kObject,  // what only the encoding itself reads, such as a scaling of RoPE
};

// "int", "real", "flag", "choice", "ints", "reals", "table" or "object".
std::string_view FieldTypeName(FieldType type);

// Where the slider of a number ends, and how it moves. Without a range (both
// ends 0) there is no slider.
struct Slider {
  double lowest = 0.0;
  double highest = 0.0;
  double step = 0.0;
  bool logarithmic = false;  // the step is a factor

  bool defined() const { return lowest != highest; }
};

// What a model in training ties an option to, unless it is given: scales that
// papers choose for their training length keep in proportion to ours.
enum class Tied : uint8_t {
  kNothing,
  kHalfLength,       // half of the training length, at least 2
  kHalfShortLength,  // the same for training lengths below 64
  kBothWays,         // true for models that see later tokens
};

// An argument of a constructor, or an option of an example.
struct Field {
  std::string_view name;
  FieldType type = FieldType::kInt;
  // The default as Python writes it, words without quotes; empty: required.
  std::string_view fallback = {};
  std::string_view choices = {};  // "add|concatenate"
  std::string_view shape = {};    // of tables and rows: "heads, 2M - 1, D"
  bool optional = false;          // may be None
  bool by_name = false;           // never by position, in Python
  std::string_view sentence = {};
  Slider slider = {};
  Tied tied = Tied::kNothing;
};

// The words of a choice.
std::vector<std::string_view> ChoicesOf(const Field& field);

struct Object {
  std::any value;
};

// A value of a field; std::monostate is None. Choices are given as their word,
// or as the number of the enumerator.
using FieldValue =
    std::variant<std::monostate, bool, int64_t, double, std::string,
                 std::vector<int64_t>, std::vector<double>, Tensor, Object>;

// Values by the names of fields.
class FieldValues {
 public:
  FieldValues() = default;
  FieldValues(
      std::initializer_list<std::pair<std::string_view, FieldValue>> values);

  void Set(std::string_view name, FieldValue value);
  // Gives every field without a value its default, and every value the type of
  // its field. Throws Error with `what` in front if a value is missing, has no
  // field or does not fit.
  void Complete(std::string_view what, std::span<const Field> fields);

  // Whether there is a value other than None.
  bool Has(std::string_view name) const;
  // Whether the value was set, and is not a default.
  bool Given(std::string_view name) const { return given_.contains(name); }
  const std::map<std::string, FieldValue, std::less<>>& values() const {
    return values_;
  }

  bool Flag(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  std::optional<int64_t> IntOrNone(std::string_view name) const;
  double Real(std::string_view name) const;
  const std::string& Word(std::string_view name) const;
  std::vector<int64_t> Ints(std::string_view name) const;
  // None is empty.
  std::vector<double> Reals(std::string_view name) const;
  // None is a Tensor that is not defined.
  Tensor Table(std::string_view name) const;
  // None is T().
  template <typename T>
  T Other(std::string_view name) const {
    if (!Has(name)) return T();
    return std::any_cast<T>(std::get<Object>(At(name)).value);
  }
  // The enumerator of a choice, after Complete.
  template <typename Enum>
  Enum Choice(std::string_view name) const {
    return static_cast<Enum>(ChoiceIndex(name));
  }

 private:
  const FieldValue& At(std::string_view name) const;
  int64_t ChoiceIndex(std::string_view name) const;

  std::map<std::string, FieldValue, std::less<>> values_;
  std::set<std::string, std::less<>> given_;
  std::span<const Field> fields_;
};

// --------------------------------------------------------------- training

// How a parameter starts in a model.
enum class Start : uint8_t {
  kExample,  // with the values of the example
  kNormal,   // normally distributed, `size` the deviation
  kUniform,  // uniform in [-size, size]
  kFanIn,    // uniform in +-1 / sqrt(the last side), as linear layers
  kXavier,   // uniform in +-sqrt(6 / (n + m)) for rows [.., n, m]
};

// "example", "normal", "uniform", "fan-in" or "xavier".
std::string_view StartName(Start start);

// Biases that are trained number by number move this much faster than weights:
// an Adam step is about the learning rate whatever the gradient, and a bias
// must travel several units, the size of a score, where a weight of size
// 1/sqrt(d) need not. T5's own optimiser scales its steps likewise.
inline constexpr double kBiasRate = 10.0;

// How a parameter trains.
struct ParamTraining {
  std::string_view name;
  Start start = Start::kExample;
  double size = 0.0;
  double rate = 1.0;    // times the learning rate
  bool decays = false;  // by weight decay
  // The optimiser's steps end inside [lowest, highest]; `highest` holds where
  // the option `highest_for`, such as "kind=power", is set, or always.
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  std::string_view highest_for = {};
  bool shared_by_heads = false;  // without the first axis, that of the heads
  // Trained instead: weights of this name, [heads, D, model_dim], that project
  // sinusoids of the offsets to the rows [heads, offsets, D].
  std::string_view projection = {};
};

// --------------------------------------------------------------- the list

enum class Reference : uint8_t { kNone, kAbsolute, kRelative };
enum class Extrapolates : uint8_t { kNo, kPartly, kYes };

// What picture shows an encoding best.
enum class Picture : uint8_t {
  kEmbedding,  // position x dimension heat map
  kBias,       // bias against offset, one curve per head
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

// The descriptor of an encoding: one row of the list.
struct EncodingInfo {
  std::string_view name;        // "rope"
  std::string_view class_name;  // "Rope"
  std::string_view title;       // "Rotary position embedding (RoPE)"
  std::string_view formula;     // one line
  std::string_view summary;     // of the class: the formula and its paper
  std::string_view paper;       // authors, title, year
  std::string_view models;      // who uses it
  Reference reference = Reference::kNone;
  bool trainable = false;
  Extrapolates extrapolates = Extrapolates::kNo;
  std::string_view extrapolation_note;
  Picture picture = Picture::kScore;

  std::span<const Field> fields = {};            // of the constructor
  std::span<const Field> options = {};           // of the example
  std::span<const std::string_view> variants{};  // options worth comparing
  std::span<const ParamTraining> training = {};  // one row per parameter
  bool shared_by_layers = false;  // of a model, as the paper has it

  // The encoding from its fields, complete.
  std::unique_ptr<Encoding> (*construct)(const FieldValues& fields) = nullptr;
  // The fields of an encoding of this class that are no tables.
  FieldValues (*settings)(const Encoding& encoding) = nullptr;
  // The fields of a ready-made instance: formulas with their usual constants,
  // tables random.
  FieldValues (*sample)(const ExampleConfig& config,
                        const FieldValues& options) = nullptr;

  std::unique_ptr<Encoding> make(FieldValues values) const;
  // Fields with which make() gives the same encoding again; tables are shared.
  FieldValues fields_of(const Encoding& encoding) const;
  std::unique_ptr<Encoding> example(const ExampleConfig& config) const;
  // "layout=interleaved|halves, base, ...".
  std::string options_text() const;
  // Options from their text, with defaults for the others.
  FieldValues read_options(
      const std::map<std::string, std::string>& texts) const;
};

// Every encoding, in the order of src/encodings/encodings.inc.
std::span<const EncodingInfo> Encodings();

// The row of a name. Throws Error with the known names, or with the reason why
// the scheme is outside (CoPE).
const EncodingInfo& FindEncoding(std::string_view name);

// Options as a variant writes them, "kind=power" or "scaling=yarn, factor=8".
std::map<std::string, std::string> ParseOptions(std::string_view text);

// An encoding of the list with options of its own, as the command line writes
// it: "rope", "rope{base=100}", "rope{scaling=yarn, factor=8}".
struct Variant {
  const EncodingInfo* info = nullptr;
  std::map<std::string, std::string> options = {};

  // The same text in one spelling: options by name, no blanks.
  std::string Name() const;
};

// Throws Error if there is no such encoding or option, or if the value is not
// one of the option's type.
Variant FindVariant(std::string_view text);

}  // namespace locus

#endif  // LOCUS_DESCRIPTOR_H_

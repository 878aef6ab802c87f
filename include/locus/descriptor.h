// The descriptor of an encoding, and the list of all encodings.
//
// Each encoding's source file ends with its EncodingInfo, from which the
// options of the command line, the Python classes with their signatures and
// docstrings, the PyTorch modules, the lab's initial values and learning rates,
// and the tables of the documents are generated.
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
  kChoice,  // one of a few words; the n-th stands for enumerator n
  kInts,    // std::vector<int64_t> of the size given by the shape
  kReals,   // std::vector<double>
  kTable,   // Tensor
  kObject,  // only the encoding knows the type, such as a scaling of RoPE
};

// "int", "real", "flag", "choice", "ints", "reals", "table" or "object".
std::string_view FieldTypeName(FieldType type);

// The range and step of a number's slider in the explorer. Without a range
// (both ends 0) there is no slider.
struct Slider {
  double lowest = 0.0;
  double highest = 0.0;
  double step = 0.0;
  bool logarithmic = false;  // the step is a factor

  bool defined() const { return lowest != highest; }
};

// What the lab derives an option from unless it is given: scales that papers
// chose for their training length stay in proportion to ours.
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
  // The default in Python syntax, strings without quotes; empty: required.
  std::string_view fallback = {};
  std::string_view choices = {};  // "add|concatenate"
  std::string_view shape = {};    // of tables and rows: "heads, 2M - 1, D"
  bool optional = false;          // may be None
  bool by_name = false;           // keyword-only in Python
  std::string_view sentence = {};
  Slider slider = {};
  Tied tied = Tied::kNothing;
};

// The words of a choice.
std::vector<std::string_view> ChoicesOf(const Field& field);

struct Object {
  std::any value;
};

// A value of a field; std::monostate is None. A choice is given as its word or
// as the number of its enumerator.
using FieldValue =
    std::variant<std::monostate, bool, int64_t, double, std::string,
                 std::vector<int64_t>, std::vector<double>, Tensor, Object>;

// Values of fields, by name.
class FieldValues {
 public:
  FieldValues() = default;
  FieldValues(
      std::initializer_list<std::pair<std::string_view, FieldValue>> values);

  void Set(std::string_view name, FieldValue value);
  // Adds defaults for missing values and converts every value to the type of
  // its field. Throws Error with `what` in front if a required value is
  // missing, if a value has no field, or if it cannot be converted.
  void Complete(std::string_view what, std::span<const Field> fields);

  // Whether there is a value other than None.
  bool Has(std::string_view name) const;
  // Whether the value was set rather than defaulted.
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
  // None is an undefined Tensor.
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

// How a parameter is initialised for training.
enum class Start : uint8_t {
  kExample,  // the values of the example
  kNormal,   // normal with standard deviation `size`
  kUniform,  // uniform in [-size, size]
  kFanIn,    // uniform in +-1 / sqrt(last axis), as for linear layers
  kXavier,   // uniform in +-sqrt(6 / (n + m)) for shape [.., n, m]
};

// "example", "normal", "uniform", "fan-in" or "xavier".
std::string_view StartName(Start start);

// The learning rate of bias tables relative to weights. An Adam step is about
// the learning rate whatever the gradient, and a bias must move by several
// units, the magnitude of a score, while a weight of magnitude 1/sqrt(d) need
// not. T5's own optimiser scales its steps likewise.
inline constexpr double kBiasRate = 10.0;

// How a parameter trains.
struct ParamTraining {
  std::string_view name;
  Start start = Start::kExample;
  double size = 0.0;
  double rate = 1.0;    // factor of the learning rate
  bool decays = false;  // subject to weight decay
  // Values are clamped to [lowest, highest] after each optimiser step;
  // `highest` applies only if the option `highest_for`, such as "kind=power",
  // is set, or always if that is empty.
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  std::string_view highest_for = {};
  bool shared_by_heads = false;  // trained without the head axis, the first
  // If set, weights of this name, [heads, D, model_dim], are trained instead:
  // they project sinusoids of the offsets to the rows [heads, offsets, D].
  std::string_view projection = {};
};

// --------------------------------------------------------------- the list

enum class Reference : uint8_t { kNone, kAbsolute, kRelative };
enum class Extrapolates : uint8_t { kNo, kPartly, kYes };

// The picture that shows an encoding best.
enum class Picture : uint8_t {
  kEmbedding,  // position x dimension heat map
  kBias,       // bias against offset, one curve per head
  kRotation,   // a random query, rotated by position
  kScore,      // mean score against offset
};

// Settings for building an example of an encoding by name. `options` are
// specific to the encoding; unknown ones are errors.
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
  std::string_view summary;     // docstring: the formula and its paper
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
  bool shared_by_layers = false;  // one instance for all layers of a model

  // Constructs the encoding from completed fields.
  std::unique_ptr<Encoding> (*construct)(const FieldValues& fields) = nullptr;
  // The fields of an encoding of this class, without tables.
  FieldValues (*settings)(const Encoding& encoding) = nullptr;
  // The fields of an example: formulas with their usual constants, tables
  // random.
  FieldValues (*sample)(const ExampleConfig& config,
                        const FieldValues& options) = nullptr;

  // The encoding with these fields; missing ones take their defaults. Throws
  // Error as FieldValues::Complete and the constructor do.
  std::unique_ptr<Encoding> make(FieldValues values) const;
  // Fields from which make() constructs the same encoding; tables are shared.
  FieldValues fields_of(const Encoding& encoding) const;
  // An example with typical constants and random tables.
  std::unique_ptr<Encoding> example(const ExampleConfig& config) const;
  // "layout=interleaved|halves, base, ...".
  std::string options_text() const;
  // Options parsed from text, with defaults for the rest.
  FieldValues read_options(
      const std::map<std::string, std::string>& texts) const;
};

// Every encoding, in the order of src/encodings/encodings.inc.
std::span<const EncodingInfo> Encodings();

// The descriptor with this name. If there is none, throws Error with the known
// names, or with the reason why the scheme is out of scope (CoPE).
const EncodingInfo& FindEncoding(std::string_view name);

// Parses options as written in a variant: "scaling=yarn, factor=8". Throws
// Error if the text is malformed.
std::map<std::string, std::string> ParseOptions(std::string_view text);

// An encoding of the list with options, in the syntax of the command line:
// "rope", "rope{base=100}", "rope{scaling=yarn, factor=8}".
struct Variant {
  const EncodingInfo* info = nullptr;
  std::map<std::string, std::string> options = {};

  // The variant in canonical form: options sorted by name, no blanks.
  std::string Name() const;
};

// Parses a variant. Throws Error if there is no such encoding or option, or if
// a value does not have the option's type.
Variant FindVariant(std::string_view text);

}  // namespace locus

#endif  // LOCUS_DESCRIPTOR_H_

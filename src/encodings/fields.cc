// Field values: defaults, parsing of command-line text, checks.
#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "locus/descriptor.h"

namespace locus {
namespace {

template <typename T>
bool Parse(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// The numbers of "(0.0, 0.5)".
std::vector<double> ParseRow(std::string_view text) {
  std::vector<double> row;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find_first_of(",)", at), text.size());
    std::string_view part = text.substr(at, end - at);
    part.remove_prefix(std::min(part.find_first_not_of("( "), part.size()));
    double value = 0.0;
    if (Parse(part, value)) row.push_back(value);
    at = end + 1;
  }
  return row;
}

FieldValue ParseDefault(const Field& field) {
  const std::string_view text = field.fallback;
  if (text == "None") return {};
  switch (field.type) {
    case FieldType::kFlag:
      return text == "True";
    case FieldType::kInt: {
      int64_t value = 0;
      if (Parse(text, value)) return value;
      break;
    }
    case FieldType::kReal: {
      double value = 0.0;
      if (Parse(text, value)) return value;
      break;
    }
    case FieldType::kChoice:
      return std::string(text);
    case FieldType::kReals:
      return ParseRow(text);
    default:
      break;
  }
  Fail("the default of {} is not one of its type: '{}'", field.name, text);
}

// Checks a value against the field's type, and converts it.
FieldValue Fit(std::string_view what, const Field& field, FieldValue value) {
  if (std::holds_alternative<std::monostate>(value)) {
    // The encoding itself reports a missing table.
    if (field.optional || field.type == FieldType::kTable) return value;
    Fail("{} needs {}, got None", what, field.name);
  }
  bool fits = false;
  switch (field.type) {
    case FieldType::kInt:
      fits = std::holds_alternative<int64_t>(value);
      break;
    case FieldType::kReal:
      if (const auto* whole = std::get_if<int64_t>(&value)) {
        value = static_cast<double>(*whole);
      }
      fits = std::holds_alternative<double>(value);
      break;
    case FieldType::kFlag:
      fits = std::holds_alternative<bool>(value);
      break;
    case FieldType::kChoice: {
      const std::vector<std::string_view> choices = ChoicesOf(field);
      if (const auto* at = std::get_if<int64_t>(&value)) {
        value = std::string(choices.at(static_cast<size_t>(*at)));
      }
      const auto* word = std::get_if<std::string>(&value);
      fits =
          word != nullptr && std::ranges::find(choices, *word) != choices.end();
      if (word != nullptr && !fits) {
        Fail("{} option {} must be one of {}, got '{}'", what, field.name,
             fmt::join(choices, ", "), *word);
      }
      break;
    }
    case FieldType::kInts:
      fits = std::holds_alternative<std::vector<int64_t>>(value);
      break;
    case FieldType::kReals:
      fits = std::holds_alternative<std::vector<double>>(value);
      break;
    case FieldType::kTable:
      fits = std::holds_alternative<Tensor>(value);
      break;
    case FieldType::kObject:
      fits = std::holds_alternative<Object>(value);
      break;
  }
  if (!fits) Fail("the value of {}'s {} has the wrong type", what, field.name);
  return value;
}

}  // namespace

std::string_view FieldTypeName(FieldType type) {
  constexpr std::string_view kNames[] = {"int",  "real",  "flag",  "choice",
                                         "ints", "reals", "table", "object"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view StartName(Start start) {
  constexpr std::string_view kNames[] = {"example", "normal", "uniform",
                                         "fan-in", "xavier"};
  return kNames[static_cast<size_t>(start)];
}

std::vector<std::string_view> ChoicesOf(const Field& field) {
  std::vector<std::string_view> choices;
  std::string_view rest = field.choices;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('|'), rest.size());
    choices.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return choices;
}

FieldValues::FieldValues(
    std::initializer_list<std::pair<std::string_view, FieldValue>> values) {
  for (const auto& [name, value] : values) Set(name, value);
}

void FieldValues::Set(std::string_view name, FieldValue value) {
  values_.insert_or_assign(std::string(name), std::move(value));
  given_.emplace(name);
}

void FieldValues::Complete(std::string_view what,
                           std::span<const Field> fields) {
  fields_ = fields;
  for (const auto& [name, value] : values_) {
    if (std::ranges::find(fields, name, &Field::name) == fields.end()) {
      Fail("{} has no field '{}'", what, name);
    }
  }
  for (const Field& field : fields) {
    const auto it = values_.find(field.name);
    if (it != values_.end()) {
      it->second = Fit(what, field, std::move(it->second));
    } else if (!field.fallback.empty()) {
      values_.emplace(field.name, ParseDefault(field));
    } else if (field.type != FieldType::kTable) {
      Fail("{} needs {}", what, field.name);
    } else {
      values_.emplace(field.name, Tensor());
    }
  }
}

const FieldValue& FieldValues::At(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) Fail("there is no field '{}'", name);
  return it->second;
}

bool FieldValues::Has(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return false;
  const auto* table = std::get_if<Tensor>(&it->second);
  return table != nullptr ? table->defined() : it->second.index() != 0;
}

bool FieldValues::Flag(std::string_view name) const {
  return std::get<bool>(At(name));
}
int64_t FieldValues::Int(std::string_view name) const {
  return std::get<int64_t>(At(name));
}
std::optional<int64_t> FieldValues::IntOrNone(std::string_view name) const {
  if (!Has(name)) return std::nullopt;
  return Int(name);
}
double FieldValues::Real(std::string_view name) const {
  return std::get<double>(At(name));
}
const std::string& FieldValues::Word(std::string_view name) const {
  return std::get<std::string>(At(name));
}
std::vector<int64_t> FieldValues::Ints(std::string_view name) const {
  return std::get<std::vector<int64_t>>(At(name));
}
std::vector<double> FieldValues::Reals(std::string_view name) const {
  if (!Has(name)) return {};
  return std::get<std::vector<double>>(At(name));
}
Tensor FieldValues::Table(std::string_view name) const {
  const auto* table = std::get_if<Tensor>(&At(name));
  return table != nullptr ? *table : Tensor();
}

int64_t FieldValues::ChoiceIndex(std::string_view name) const {
  const auto field = std::ranges::find(fields_, name, &Field::name);
  if (field == fields_.end()) Fail("there is no choice '{}'", name);
  const std::vector<std::string_view> choices = ChoicesOf(*field);
  return std::ranges::find(choices, Word(name)) - choices.begin();
}

// ------------------------------------------------------------ descriptors

namespace {

// Parses an option from the command line by its field's type.
FieldValue ParseOption(std::string_view encoding, const Field& field,
                       const std::string& text) {
  if (field.type == FieldType::kInt) {
    int64_t value = 0;
    if (Parse(text, value)) return value;
    Fail("{} option {} must be a whole number, got '{}'", encoding, field.name,
         text);
  }
  if (field.type == FieldType::kReal) {
    double value = 0.0;
    if (Parse(text, value)) return value;
    Fail("{} option {} must be a number, got '{}'", encoding, field.name, text);
  }
  if (field.type == FieldType::kFlag) {
    if (text == "true" || text == "false") return text == "true";
    Fail("{} option {} must be one of true, false, got '{}'", encoding,
         field.name, text);
  }
  return text;
}

}  // namespace

std::unique_ptr<Encoding> EncodingInfo::make(FieldValues values) const {
  values.Complete(class_name, fields);
  return construct(values);
}

FieldValues EncodingInfo::fields_of(const Encoding& encoding) const {
  if (encoding.Name() != name) {
    Fail("{} describes no {}", class_name, encoding.Name());
  }
  FieldValues values = settings(encoding);
  for (const Param& param : encoding.Params()) {
    values.Set(param.name, param.value);
  }
  return values;
}

FieldValues EncodingInfo::read_options(
    const std::map<std::string, std::string>& texts) const {
  FieldValues given;
  for (const auto& [option, text] : texts) {
    const auto field = std::ranges::find(options, option, &Field::name);
    if (field == options.end()) {
      std::vector<std::string_view> known;
      for (const Field& o : options) known.push_back(o.name);
      std::ranges::sort(known);
      Fail("{} has no option '{}'{}", name, option,
           known.empty() ? std::string()
                         : fmt::format("; it has {}", fmt::join(known, ", ")));
    }
    given.Set(option, ParseOption(name, *field, text));
  }
  given.Complete(name, options);
  return given;
}

std::unique_ptr<Encoding> EncodingInfo::example(
    const ExampleConfig& config) const {
  return make(sample(config, read_options(config.options)));
}

std::string EncodingInfo::options_text() const {
  std::string text;
  for (const Field& option : options) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", option.name);
    if (option.type == FieldType::kFlag) text += "=true|false";
    if (option.type == FieldType::kChoice) {
      text += fmt::format("={}", option.choices);
    }
  }
  return text;
}

namespace {

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::map<std::string, std::string> ParseOptions(std::string_view text) {
  std::map<std::string, std::string> options;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = Trimmed(text.substr(0, end));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      Fail("an option must be given as name=value, got '{}'", part);
    }
    const std::string name(Trimmed(part.substr(0, equals)));
    if (!options.emplace(name, Trimmed(part.substr(equals + 1))).second) {
      Fail("the option {} is given twice", name);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return options;
}

std::string Variant::Name() const {
  std::string text(info->name);
  const char* before = "{";
  for (const auto& [option, value] : options) {
    text += fmt::format("{}{}={}", before, option, value);
    before = ",";
  }
  return options.empty() ? text : text + "}";
}

Variant FindVariant(std::string_view text) {
  text = Trimmed(text);
  const size_t brace = text.find('{');
  if (brace == std::string_view::npos) return {.info = &FindEncoding(text)};
  if (text.find('}') != text.size() - 1) {
    Fail("a variant is written as name{{option=value, ...}}, got '{}'", text);
  }
  Variant variant = {
      .info = &FindEncoding(Trimmed(text.substr(0, brace))),
      .options = ParseOptions(text.substr(brace + 1, text.size() - brace - 2))};
  variant.info->read_options(variant.options);
  return variant;
}

}  // namespace locus

#include "signature.h"

#include <nanobind/eval.h>

#include "values.h"

namespace locus::python {
namespace {

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \n") - first + 1);
}

// The parts between commas that no bracket encloses.
std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = Trim(part);
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

[[noreturn]] void Refuse(const Signature& signature, const std::string& text) {
  throw nb::type_error((signature.name() + "() " + text).c_str());
}

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

}  // namespace

Signature::Signature(const std::string& text) {
  const size_t open = text.find('('), close = text.rfind(')');
  name_ = text.substr(0, open);
  inside_ = text.substr(open + 1, close - open - 1);
  result_ = text.substr(close + 1);
  bool by_name_only = false;
  for (const std::string& part : Split(inside_)) {
    if (part == "*") {
      by_name_only = true;
      continue;
    }
    if (part.starts_with("**")) {
      open_ = true;
      continue;
    }
    Parameter parameter;
    parameter.name = part.substr(0, part.find(':'));
    parameter.key = PyUnicode_InternFromString(parameter.name.c_str());
    if (const size_t equals = part.find(" = "); equals != std::string::npos) {
      parameter.default_value =
          nb::eval(nb::str(part.substr(equals + 3).c_str())).release().ptr();
    }
    if (!by_name_only) ++positional_;
    parameters_.push_back(std::move(parameter));
  }
  if (parameters_.size() > Arguments::kMost) {
    throw nb::value_error((name_ + " has too many parameters").c_str());
  }
}

std::string Signature::Definition(bool method) const {
  std::string text = "def " + name_ + "(";
  if (method) text += inside_.empty() ? "self" : "self, ";
  return text + inside_ + ")" + (result_.empty() ? " -> None" : result_);
}

Arguments::Arguments(const Signature& signature, const nb::args& args,
                     size_t skip, const nb::kwargs& kwargs)
    : signature_(signature) {
  const auto& parameters = signature.parameters();
  const size_t given = args.size() - skip;
  if (given > signature.positional()) {
    Refuse(signature,
           "takes at most " + std::to_string(signature.positional()) +
               " arguments by position, got " + std::to_string(given));
  }
  for (size_t i = 0; i < given; ++i) {
    values_[i] = PyTuple_GetItem(args.ptr(), static_cast<Py_ssize_t>(skip + i));
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(kwargs.ptr(), &at, &key, &value)) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].key != key) ++i;
    if (i == parameters.size()) {
      if (!signature.open()) {
        Refuse(signature, "has no argument " + Shown(key));
      }
      rest_[key] = nb::borrow(value);
      continue;
    }
    if (values_[i] != nullptr) {
      Refuse(signature, "got " + Quoted(parameters[i].name) +
                            " both by position and by name");
    }
    values_[i] = value;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (values_[i] != nullptr) continue;
    values_[i] = parameters[i].default_value;
    if (values_[i] == nullptr) {
      Refuse(signature, "needs the argument " + Quoted(parameters[i].name));
    }
  }
}

void RefuseSelf(const Signature& signature, nb::handle type) {
  Refuse(signature, "is a method of " + Line(type.attr("__name__")) +
                        " and was called on something else");
}

size_t Arguments::IndexOf(const char* name) const {
  const auto& parameters = signature_.parameters();
  for (size_t tried = 0; tried < parameters.size(); ++tried) {
    const size_t i = (next_ + tried) % parameters.size();
    if (parameters[i].name != name) continue;
    next_ = i;
    return i;
  }
  return kMost;
}

nb::handle Arguments::operator[](const char* name) const {
  const size_t i = IndexOf(name);
  if (i == kMost) throw nb::key_error(name);  // a mistake of the binding itself
  next_ = i + 1;
  return values_[i];
}

bool Arguments::Flag(const char* name) const {
  return FlagOf(name, (*this)[name]);
}
int64_t Arguments::Int(const char* name) const {
  return IntOf(name, (*this)[name]);
}
double Arguments::Real(const char* name) const {
  return RealOf(name, (*this)[name]);
}
std::string Arguments::Text(const char* name) const {
  return TextOf(name, (*this)[name]);
}

std::optional<int64_t> Arguments::IntOrNone(const char* name) const {
  const nb::handle value = (*this)[name];
  if (value.is_none()) return std::nullopt;
  return IntOf(name, value);
}
std::optional<double> Arguments::RealOrNone(const char* name) const {
  const nb::handle value = (*this)[name];
  if (value.is_none()) return std::nullopt;
  return RealOf(name, value);
}
std::optional<std::string> Arguments::TextOrNone(const char* name) const {
  const nb::handle value = (*this)[name];
  if (value.is_none()) return std::nullopt;
  return TextOf(name, value);
}

std::pair<int64_t, int64_t> Arguments::IntPair(const char* name) const {
  return IntPairOf(name, (*this)[name]);
}

int Arguments::Threads() const { return ThreadsOf((*this)["threads"]); }

}  // namespace locus::python

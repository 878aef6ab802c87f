// Functions of the module by their Python signature.
//
// A function is declared as Python would write it,
//   "attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any"
// and its body reads the arguments by name. One text gives the names, the
// defaults and the type stub, and whatever does not fit is refused in one
// sentence that names the argument and the value.
#ifndef LOCUS_PYTHON_SRC_SIGNATURE_H_
#define LOCUS_PYTHON_SRC_SIGNATURE_H_

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "words.h"

namespace locus::python {

namespace nb = nanobind;

class Signature {
 public:
  explicit Signature(const std::string& text);

  struct Parameter {
    std::string name;
    // Interned, and kept for good like the function itself.
    PyObject* key = nullptr;
    PyObject* default_value = nullptr;  // null: required
  };

  // "attention": what stands before the parenthesis.
  const std::string& name() const { return name_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // So many may be given by position.
  size_t positional() const { return positional_; }
  // Whether it ends in **options.
  bool open() const { return open_; }
  // "def attention(...) -> Any", with `self` first for a method.
  std::string Definition(bool method) const;

 private:
  std::string name_, inside_, result_;
  std::vector<Parameter> parameters_;
  size_t positional_ = 0;
  bool open_ = false;
};

// The arguments of one call. Values live as long as the call.
class Arguments {
 public:
  static constexpr size_t kMost = 32;

  // `skip`: leading positions that are not of the signature (self).
  Arguments(const Signature& signature, const nb::args& args, size_t skip,
            const nb::kwargs& kwargs);

  // Whether the signature has it.
  bool Has(const char* name) const { return IndexOf(name) < kMost; }
  nb::handle operator[](const char* name) const;
  // What **options took.
  const nb::dict& rest() const { return rest_; }

  bool Flag(const char* name) const;
  int64_t Int(const char* name) const;
  double Real(const char* name) const;
  std::string Text(const char* name) const;
  // None is nothing.
  std::optional<int64_t> IntOrNone(const char* name) const;
  std::optional<double> RealOrNone(const char* name) const;
  std::optional<std::string> TextOrNone(const char* name) const;
  std::pair<int64_t, int64_t> IntPair(const char* name) const;
  // 0: as many as the machine has.
  int Threads() const;
  // A keyword that is one of few words.
  template <typename T, size_t n>
  T Choice(const char* name, const Word<T> (&words)[n]) const {
    return WordOf(name, (*this)[name], words);
  }

 private:
  // kMost: there is none.
  size_t IndexOf(const char* name) const;

  const Signature& signature_;
  std::array<PyObject*, kMost> values_ = {};
  nb::dict rest_;
  mutable size_t next_ = 0;  // where the next name is looked for first
};

// TypeError: a method of `type` was called on something else.
[[noreturn]] void RefuseSelf(const Signature& signature, nb::handle type);

// The object that a method is called on.
template <typename T>
T& SelfOf(const Signature& signature, const nb::args& args) {
  T* self = nullptr;
  if (args.size() == 0 || !nb::try_cast<T*>(args[0], self, false) ||
      self == nullptr) {
    RefuseSelf(signature, nb::type<T>());
  }
  return *self;
}

// body(arguments) as a function of the module.
template <typename Body>
void Function(nb::module_& m, const std::string& text, const char* doc,
              Body body) {
  // Kept for good, like the function.
  const auto* signature = new Signature(text);
  m.def(
      signature->name().c_str(),
      [signature, body](const nb::args& args, const nb::kwargs& kwargs) {
        return body(Arguments(*signature, args, 0, kwargs));
      },
      nb::sig(signature->Definition(/*method=*/false).c_str()), doc);
}

// body(self, arguments) as a method.
template <typename T, typename... Extra, typename Body>
void Method(nb::class_<T, Extra...>& type, const std::string& text,
            const char* doc, Body body) {
  const auto* signature = new Signature(text);
  type.def(
      signature->name().c_str(),
      [signature, body](const nb::args& args, const nb::kwargs& kwargs) {
        T& self = SelfOf<T>(*signature, args);
        return body(self, Arguments(*signature, args, 1, kwargs));
      },
      nb::sig(signature->Definition(/*method=*/true).c_str()), doc);
}

// body(arguments) as a static method.
template <typename Type, typename Body>
void Static(Type& type, const char* text, const char* doc, Body body) {
  const auto* signature = new Signature(text);
  type.def_static(
      signature->name().c_str(),
      [signature, body](const nb::args& args, const nb::kwargs& kwargs) {
        return body(Arguments(*signature, args, 0, kwargs));
      },
      nb::sig(("@staticmethod\n" + signature->Definition(/*method=*/false))
                  .c_str()),
      doc);
}

// body(place, arguments) makes an object at `place`. The text names the class:
// "Rope(head_dim: int, layout: str)".
template <typename T, typename... Extra, typename Body>
void Constructor(nb::class_<T, Extra...>& type, const char* text, Body body) {
  const auto* signature = new Signature(text);
  std::string definition = signature->Definition(/*method=*/true);
  definition.replace(4, signature->name().size(), "__init__");
  type.def(
      "__init__",
      [signature, body](T* self, const nb::args& args,
                        const nb::kwargs& kwargs) {
        body(self, Arguments(*signature, args, 0, kwargs));
      },
      nb::sig(definition.c_str()));
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_SIGNATURE_H_

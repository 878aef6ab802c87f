// Objects that speak DLPack, without trust in what they say.
#ifndef LOCUS_PYTHON_SRC_DLPACK_H_
#define LOCUS_PYTHON_SRC_DLPACK_H_

#include <nanobind/nanobind.h>

namespace locus::python {

// The capsule of object.__dlpack__(), looked through: a tensor on the CPU of a
// sane rank and sizes. Invalid if the object has no such method. `writable`
// asks for one that tells whether it may be written to.
nanobind::object DlpackCapsule(const char* name, nanobind::handle object,
                               bool writable);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_DLPACK_H_

// The fields of an encoding's descriptor in Python: signature and docstring of
// its class, arguments of a call, and the arguments that make an encoding
// again, which is how it is copied and pickled.
#ifndef LOCUS_PYTHON_SRC_ENCODING_FIELDS_H_
#define LOCUS_PYTHON_SRC_ENCODING_FIELDS_H_

#include <nanobind/nanobind.h>

#include <string>

#include "locus/descriptor.h"
#include "signature.h"

namespace locus::python {

// "Alibi(heads: int, bias_max: float = 8.0, ...)".
std::string SignatureOf(const EncodingInfo& info);
// The summary, then a line for each field.
std::string DocumentOf(const EncodingInfo& info);

FieldValues ReadFields(const EncodingInfo& info, const Arguments& a);
// Arguments that make the same encoding again; tables are shared.
nb::dict FieldsDict(const EncodingInfo& info, const Encoding& encoding);

// The same of fields and of training as EncodingInfo shows them: lists of
// dicts.
nb::list FieldsList(std::span<const Field> fields);
nb::list TrainingList(std::span<const ParamTraining> training);

// How the offsets of a Tupe find their column of the bias. Opaque to Python,
// which meets it only inside pickles: a map of its own could lead anywhere.
struct Buckets {
  BucketMap map;
};
void BindBuckets(nb::module_& m);

// name -> array, shared.
nb::dict ParamsOf(const Encoding& encoding);

// (rebuild of locus._copies, (the class bound here, the object's own, the
// arguments), what a subclass put into the object).
nb::tuple Reduced(nb::handle self, nb::handle native,
                  const nb::dict& arguments);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ENCODING_FIELDS_H_

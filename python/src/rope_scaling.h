// Scalings of RoPE as config.json spells them.
#ifndef LOCUS_PYTHON_SRC_ROPE_SCALING_H_
#define LOCUS_PYTHON_SRC_ROPE_SCALING_H_

#include <nanobind/nanobind.h>

#include "locus/encodings/rope.h"

namespace locus::python {

// Sets options.scaling from a dict such as {"rope_type": "yarn", "factor": 4.0,
// "original_max_position_embeddings": 32768}; `rope_theta` in it is the base. A
// key that the scaling does not read is an error that names it.
void ReadScaling(nanobind::handle scaling, RopeOptions& options);

// The dict that ReadScaling reads as this scaling; None for no scaling.
nanobind::object ScalingDict(const RopeScaling& scaling);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ROPE_SCALING_H_

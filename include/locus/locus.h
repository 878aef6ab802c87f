// The whole public API: #include <locus/locus.h>.
#ifndef LOCUS_LOCUS_H_
#define LOCUS_LOCUS_H_

#include "locus/attention.h"
#include "locus/check.h"
#include "locus/checkpoint.h"
#include "locus/descriptor.h"
#include "locus/encoding.h"
#include "locus/encodings/all.h"
#include "locus/error.h"
#include "locus/files.h"
#include "locus/forget_gate.h"
#include "locus/kv_cache.h"
#include "locus/linear_attention.h"
#include "locus/machine.h"
#include "locus/models.h"
#include "locus/plan.h"
#include "locus/reference.h"
#include "locus/rotary.h"
#include "locus/simd.h"
#include "locus/tensor.h"
#include "locus/terms.h"
#include "locus/text.h"
#include "locus/threads.h"
#include "locus/version.h"

#endif  // LOCUS_LOCUS_H_

// Every encoding; tools/new_encoding.py adds to it.
#ifndef LOCUS_ENCODINGS_ALL_H_
#define LOCUS_ENCODINGS_ALL_H_

#include "locus/encodings/alibi.h"
#include "locus/encodings/binary.h"
#include "locus/encodings/deberta.h"
#include "locus/encodings/fire.h"
#include "locus/encodings/index.h"
#include "locus/encodings/kerple.h"
#include "locus/encodings/learned.h"
#include "locus/encodings/none.h"
#include "locus/encodings/rope.h"
#include "locus/encodings/rope2d.h"
#include "locus/encodings/rope_learned.h"
#include "locus/encodings/sandwich.h"
#include "locus/encodings/shaw.h"
#include "locus/encodings/sinusoidal.h"
#include "locus/encodings/swin.h"
#include "locus/encodings/t5.h"
#include "locus/encodings/transformer_xl.h"
#include "locus/encodings/tupe.h"
#include "locus/encodings/xpos.h"

#endif  // LOCUS_ENCODINGS_ALL_H_

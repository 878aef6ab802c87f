#include "lab/train/threads.h"

#include <ATen/Parallel.h>

namespace locus::lab {

void SetThreads(int threads) { at::set_num_threads(threads); }

}  // namespace locus::lab

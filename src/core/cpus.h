// The share of the machine's CPUs that this process may use.
#ifndef LOCUS_SRC_CORE_CPUS_H_
#define LOCUS_SRC_CORE_CPUS_H_

#include <string>

namespace locus {

// The lowest CPU quota among this process's control groups and their ancestors,
// in CPUs, such as 1.5; infinity if there is none. `root` is prepended to /proc
// and the mount points; it is empty except in tests.
double CpuQuota(const std::string& root);

// Number of CPUs in this thread's affinity mask, which new threads inherit; at
// least 1.
int AffinityCpus();

}  // namespace locus

#endif  // LOCUS_SRC_CORE_CPUS_H_

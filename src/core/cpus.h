// The share of the machine's CPUs that a process has.
#ifndef LOCUS_SRC_CORE_CPUS_H_
#define LOCUS_SRC_CORE_CPUS_H_

#include <string>

namespace locus {

// The least CPU quota of this process's control groups and those above them, in
// CPUs, such as 1.5; infinity: none. `root` stands before /proc and the mount
// points: empty, but for tests.
double CpuQuota(const std::string& root);

// CPUs in the affinity mask of this thread, which others inherit; at least 1.
int AffinityCpus();

}  // namespace locus

#endif  // LOCUS_SRC_CORE_CPUS_H_

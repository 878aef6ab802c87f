// Control groups limit the CPU time of a group of processes to `quota`
// microseconds in every `period`. In version 2 a group has one file,
//
//   cpu.max      "150000 100000" or "max 100000"
//
// in version 1 two, cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. The
// group of this process is listed in /proc/self/cgroup, and the mount points of
// groups in /proc/self/mountinfo; limits of parent groups apply as well. A
// container usually sees its own group as the root of the mount.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "core/cpus.h"

namespace locus {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// The contents of a file; empty if there is no such file.
std::string ReadText(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "re"), &std::fclose);
  std::string text;
  char some[4096];
  while (file) {
    const size_t read = std::fread(some, 1, sizeof(some), file.get());
    if (read == 0) break;
    text.append(some, read);
  }
  return text;
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool Has(const std::string& list, const char* word) {
  return std::ranges::count(Split(list, ','), word) > 0;
}

// A hierarchy of groups, and the group in it that this process belongs to.
struct Hierarchy {
  bool unified = false;  // version 2
  std::string group = {};
};

// "4:cpu,cpuacct:/a/group" of version 1, "0::/a/group" of version 2.
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  for (const std::string& line :
       Split(ReadText(root + "/proc/self/cgroup"), '\n')) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !Has(controllers, "cpu")) continue;
    found.push_back({.unified = unified, .group = line.substr(second + 1)});
  }
  return found;
}

// A mounted hierarchy: the group at the root of the mount, and the mount point.
struct Mount {
  std::string root = {};
  std::string point = {};  // empty: not mounted
};

// "36 25 0:31 ROOT POINT rw,nosuid shared:9 - cgroup2 cgroup2 rw,OPTIONS": the
// number of fields before the dash varies; of those after it the first is the
// type and the last lists the controllers.
Mount FindMount(const std::string& root, bool unified) {
  for (const std::string& line :
       Split(ReadText(root + "/proc/self/mountinfo"), '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    const auto dash = std::ranges::find(fields, "-");
    if (dash - fields.begin() < 5 || fields.end() - dash < 4) continue;
    const bool match = unified ? dash[1] == "cgroup2"
                               : dash[1] == "cgroup" && Has(dash[3], "cpu");
    if (match) return {.root = fields[3], .point = fields[4]};
  }
  return {};
}

double QuotaOf(const std::string& folder, bool unified) {
  const std::string text = unified
                               ? ReadText(folder + "/cpu.max")
                               : ReadText(folder + "/cpu.cfs_quota_us") + " " +
                                     ReadText(folder + "/cpu.cfs_period_us");
  double quota = 0.0, period = 0.0;
  const int numbers = std::sscanf(text.c_str(), "%lf %lf", &quota, &period);
  return numbers == 2 && quota > 0.0 && period > 0.0 ? quota / period
                                                     : kNoQuota;
}

}  // namespace

double CpuQuota(const std::string& root) {
  double least = kNoQuota;
  for (const Hierarchy& hierarchy : Hierarchies(root)) {
    const Mount mount = FindMount(root, hierarchy.unified);
    if (mount.point.empty()) continue;
    // The path of the group relative to the root of the mount.
    std::string group = hierarchy.group;
    const std::string above = mount.root == "/" ? "" : mount.root;
    if (group == above || group.starts_with(above + "/")) {
      group.erase(0, above.size());
    } else {
      group.clear();
    }
    if (group == "/") group.clear();
    // Quotas of parent groups apply as well.
    std::string folder = root + mount.point;
    const size_t top = folder.size();
    folder += group;
    for (;;) {
      least = std::min(least, QuotaOf(folder, hierarchy.unified));
      if (folder.size() == top) break;
      folder.erase(folder.rfind('/'));
    }
  }
  return least;
}

}  // namespace locus

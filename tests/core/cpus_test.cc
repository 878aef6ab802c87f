// How many CPUs a process may use.
#include "core/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "core/threads.h"
#include "locus/threads.h"

namespace locus::testing {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// A folder with files of /proc and of control groups.
class CpuQuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "locus-cpus-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double Quota() const { return CpuQuota(root_); }

  std::string root_;
};

TEST_F(CpuQuotaTest, NoneWithoutControlGroups) { EXPECT_EQ(Quota(), kNone); }

TEST_F(CpuQuotaTest, Version2) {
  Write("/proc/self/cgroup", "0::/user.slice/app\n");
  Write("/proc/self/mountinfo",
        "25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
        "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 "
        "rw,nsdelegate\n");
  EXPECT_EQ(Quota(), kNone);
  Write("/sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), kNone);
  Write("/sys/fs/cgroup/user.slice/app/cpu.max", "250000 100000\n");
  EXPECT_EQ(Quota(), 2.5);
  Write("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 1.5) << "a group above allows less";
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota(), 1.5) << "a group above allows more";
}

// In a container, the group listed in /proc is outside, and the container's own
// is the root of the mount.
TEST_F(CpuQuotaTest, Version2InAContainer) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/proc/self/mountinfo",
        "640 639 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota(), 0.5);
  Write("/proc/self/cgroup", "0::/../../other\n");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(CpuQuotaTest, Version1) {
  Write("/proc/self/cgroup",
        "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  Write("/proc/self/mountinfo",
        "32 31 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup "
        "rw,memory\n"
        "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
        "rw,cpu,cpuacct\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), kNone);
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(Quota(), 3.0);
  // Not a container: the mount shows all groups.
  Write("/proc/self/mountinfo",
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
        "rw,cpu,cpuacct\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "120000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 1.2);
}

TEST_F(CpuQuotaTest, SurvivesNonsense) {
  Write("/proc/self/cgroup",
        "\n:\n0:\n0::\n4:cpu:elsewhere\n::::\n0::/a//b/\n");
  Write("/proc/self/mountinfo",
        "\n- - -\n1 2 3 / /mnt - cgroup2 x y\n1 2 3 4 - cgroup\n"
        "1 2 3 / /one rw - cgroup cgroup rw,cpu");
  Write("/mnt/cpu.max", "lots of it");
  Write("/one/cpu.cfs_quota_us", "0");
  Write("/one/cpu.cfs_period_us", "");
  EXPECT_EQ(Quota(), kNone);
}

TEST(CpusTest, RespectsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(AffinityCpus(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AffinityCpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(CpusTest, IsTheDefaultNumberOfThreads) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(), AffinityCpus());
  EXPECT_EQ(NumThreads(0), UsableCpus());
  EXPECT_EQ(NumThreads(7), 7);
}

}  // namespace
}  // namespace locus::testing

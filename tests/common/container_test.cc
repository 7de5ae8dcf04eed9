// SPDX-License-Identifier: Apache-2.0
#include "services/common/container.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/temp_folder.h"

namespace continuo::common {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Writes a made-up /sys/fs/cgroup and /proc.
class ContainerTest : public ::testing::Test {
 protected:
  ContainerTest() {
    roots_.cgroup = root_ + "/cgroup";
    roots_.proc = root_ + "/proc";
    roots_.affinity_cpus = 16;
    Write("proc/meminfo", "MemTotal:       4194304 kB\nMemAvailable:   1048576 kB\n");
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  const testing::TempFolder temp_;
  const std::string root_ = temp_.path();
  ContainerRoots roots_;
};

TEST_F(ContainerTest, WithoutCgroupsTheHostCounts) {
  EXPECT_EQ(AvailableThreads(roots_), 16);
  EXPECT_EQ(AvailableMemoryBytes(roots_), 1024 * kMiB);
}

TEST_F(ContainerTest, WithoutAnythingNothingIsPromised) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(AvailableMemoryBytes(roots_), 0);
  EXPECT_EQ(MemoryLimitBytes(roots_), std::nullopt);
}

TEST_F(ContainerTest, QuotaIsRoundedUpAndAtLeastOne) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(AvailableThreads(roots_), 3);
  Write("cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(AvailableThreads(roots_), 1);
  Write("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(AvailableThreads(roots_), 16);
}

TEST_F(ContainerTest, AffinityCountsWhereItIsLessThanTheQuota) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/cpu.max", "800000 100000\n");
  roots_.affinity_cpus = 2;
  EXPECT_EQ(AvailableThreads(roots_), 2);
}

TEST_F(ContainerTest, TheTightestCgroupOnThePathCounts) {
  Write("proc/self/cgroup", "0::/pods/pod1/app\n");
  Write("cgroup/pods/cpu.max", "400000 100000\n");
  Write("cgroup/pods/pod1/cpu.max", "200000 100000\n");
  Write("cgroup/pods/pod1/app/cpu.max", "max 100000\n");
  EXPECT_EQ(AvailableThreads(roots_), 2);

  Write("cgroup/pods/memory.max",
        "629145600\n");  // The limit is 600 MiB, of which 500 MiB are in use.
  Write("cgroup/pods/memory.current", "524288000\n");
  Write("cgroup/pods/pod1/memory.max", "314572800\n");
  Write("cgroup/pods/pod1/memory.current", "0\n");
  Write("cgroup/pods/pod1/app/memory.max", "max\n");
  EXPECT_EQ(AvailableMemoryBytes(roots_), 100 * kMiB);
  EXPECT_EQ(MemoryLimitBytes(roots_), 300 * kMiB);
}

TEST_F(ContainerTest, AHostPathWithOnlyOurPartMountedUsesTheMount) {
  Write("proc/self/cgroup", "0::/kubepods.slice/pod1.slice/cri-1.scope\n");
  Write("cgroup/cpu.max", "150000 100000\n");
  Write("cgroup/memory.max", "104857600\n");
  Write("cgroup/memory.current", "4194304\n");
  EXPECT_EQ(AvailableThreads(roots_), 2);
  EXPECT_EQ(AvailableMemoryBytes(roots_), 96 * kMiB);
}

TEST_F(ContainerTest, FilePagesThatCanBeDroppedAreNotInUse) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/memory.max", "104857600\n");
  Write("cgroup/memory.current", "94371840\n");
  Write("cgroup/memory.stat", "anon 1\ninactive_file 52428800\nactive_file 7\n");
  EXPECT_EQ(AvailableMemoryBytes(roots_), 60 * kMiB);
}

TEST_F(ContainerTest, UsageAboveTheLimitLeavesNothing) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/memory.max", "1000\n");
  Write("cgroup/memory.current", "2000\n");
  EXPECT_EQ(AvailableMemoryBytes(roots_), 0);
  EXPECT_EQ(MemoryLimitBytes(roots_), 1000);
}

TEST_F(ContainerTest, VersionOneIsRead) {
  Write("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n");
  Write("cgroup/cpu/docker/abc/cpu.cfs_quota_us", "150000\n");
  Write("cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  Write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("cgroup/memory/docker/abc/memory.limit_in_bytes", "104857600\n");
  Write("cgroup/memory/docker/abc/memory.usage_in_bytes", "52428800\n");
  Write("cgroup/memory/docker/abc/memory.stat", "total_inactive_file 10485760\n");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(AvailableThreads(roots_), 2);
  EXPECT_EQ(AvailableMemoryBytes(roots_), 60 * kMiB);
  EXPECT_EQ(MemoryLimitBytes(roots_), 100 * kMiB);
}

TEST_F(ContainerTest, NonsenseIsNoLimit) {
  Write("proc/self/cgroup", "\n:::\nx\n0::/../..\n");
  Write("cgroup/cpu.max", "0 0\n");
  Write("cgroup/memory.max", "many\n");
  EXPECT_EQ(AvailableThreads(roots_), 16);
  EXPECT_EQ(AvailableMemoryBytes(roots_), 1024 * kMiB);
  EXPECT_EQ(MemoryLimitBytes(roots_), 4096 * kMiB);
}

TEST(ContainerHereTest, ThisMachineHasSomething) {
  EXPECT_GE(AvailableThreads(), 1);
  EXPECT_GT(AvailableMemoryBytes(), 0);
}

}  // namespace
}  // namespace continuo::common

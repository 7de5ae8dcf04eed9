// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CPUs and the memory of this container: the minimum over the host, the process's affinity
// mask, and the limits of its cgroup (v1 or v2) and of every visible cgroup above it.

#include <cstdint>
#include <optional>
#include <string>

namespace continuo::common {

// The folders that are read; tests set others.
struct ContainerRoots {
  std::string cgroup = "/sys/fs/cgroup";
  std::string proc = "/proc";
  // The number of CPUs that the process may run on; 0 asks the system.
  int affinity_cpus = 0;
};

// The number of CPUs in the affinity mask, or the CPU quota rounded up where that is less. At
// least 1.
int AvailableThreads(const ContainerRoots& roots = {});

// The memory limit of this container in bytes: the minimum of the host's memory and the limits of
// its cgroups. Returns nullopt where neither is known.
std::optional<uint64_t> MemoryLimitBytes(const ContainerRoots& roots = {});

// The number of bytes that can still be allocated: the minimum of MemAvailable and, for each
// cgroup, its limit minus its working set (usage without file pages that can be dropped). 0 where
// nothing is left or nothing is known.
uint64_t AvailableMemoryBytes(const ContainerRoots& roots = {});

}  // namespace continuo::common

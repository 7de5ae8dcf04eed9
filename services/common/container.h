// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this container really has: the smallest of the host, the process's affinity and the limits
// of its cgroup (v1 or v2) and every cgroup above it that is visible.

#include <cstdint>
#include <optional>
#include <string>

namespace continuo::common {

// Where to look; tests point elsewhere.
struct ContainerRoots {
  std::string cgroup = "/sys/fs/cgroup";
  std::string proc = "/proc";
  // CPUs that the process may run on; 0 asks the system.
  int affinity_cpus = 0;
};

// CPUs of the affinity mask, or the CPU quota rounded up where that is less. At least 1.
int AvailableThreads(const ContainerRoots& roots = {});

// Bytes that this container may ever have: the least of the host's memory and the limits of its
// cgroups. nullopt where neither is known.
std::optional<uint64_t> MemoryLimitBytes(const ContainerRoots& roots = {});

// Bytes that can still be allocated: the least of MemAvailable and, for each cgroup, its limit
// minus its working set (usage without file pages that can be dropped). 0 where nothing is left.
uint64_t AvailableMemoryBytes(const ContainerRoots& roots = {});

}  // namespace continuo::common

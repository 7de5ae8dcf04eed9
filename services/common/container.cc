// SPDX-License-Identifier: Apache-2.0
#include "services/common/container.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace continuo::common {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) return std::nullopt;
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// Reads the number in a file that holds nothing else; nullopt for "max", -1, or a missing file.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  uint64_t value;
  if (!text.has_value() || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

// Finds the number after `key` in lines of "key value" or "key:  value kB".
std::optional<uint64_t> ReadKey(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  uint64_t value;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The path of the process in the hierarchy of `controller` ("" is v2), from /proc/self/cgroup.
std::optional<std::string> CgroupPath(const ContainerRoots& roots, const std::string& controller) {
  std::ifstream file(roots.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    return parts[2];
  }
  return std::nullopt;
}

// Calls `visit` with the folder of the process's cgroup and of each one above it. Where the path is
// the host's and only our part of the tree is mounted, the mount itself is our cgroup.
void ForEachCgroup(const ContainerRoots& roots, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit) {
  const std::string mount = controller.empty() ? roots.cgroup : roots.cgroup + "/" + controller;
  std::string path = CgroupPath(roots, controller).value_or("");
  while (!path.empty() && path != "/") {
    visit(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  visit(mount);
}

// The file names of one cgroup version.
struct MemoryFiles {
  const char* controller;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // A key of memory.stat.
};
constexpr MemoryFiles kMemoryV2 = {"", "memory.max", "memory.current", "inactive_file"};
constexpr MemoryFiles kMemoryV1 = {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};

// Calls `visit` for each cgroup with a memory limit.
void ForEachMemoryLimit(
    const ContainerRoots& roots,
    const std::function<void(const MemoryFiles& files, const std::string& folder, uint64_t limit)>&
        visit) {
  for (const MemoryFiles& files : {kMemoryV2, kMemoryV1}) {
    ForEachCgroup(roots, files.controller, [&](const std::string& folder) {
      const auto limit = ReadNumber(folder + "/" + files.limit);
      if (limit.has_value()) visit(files, folder, *limit);
    });
  }
}

// The CPU quota in CPUs; infinite where there is none.
double CgroupCpus(const ContainerRoots& roots) {
  double cpus = std::numeric_limits<double>::infinity();
  const auto take = [&cpus](double quota, double period) {
    if (quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  };
  ForEachCgroup(roots, "", [&](const std::string& folder) {  // v2: "100000 100000", "max 100000"
    std::istringstream text(ReadFile(folder + "/cpu.max").value_or(""));
    double quota, period;
    if (text >> quota >> period) take(quota, period);
  });
  ForEachCgroup(roots, "cpu", [&](const std::string& folder) {
    const auto quota = ReadNumber(folder + "/cpu.cfs_quota_us");
    const auto period = ReadNumber(folder + "/cpu.cfs_period_us");
    if (quota.has_value() && period.has_value()) {
      take(static_cast<double>(*quota), static_cast<double>(*period));
    }
  });
  return cpus;
}

int AffinityCpus() {
  // The mask is large enough for every kernel; the system rejects one that is too small.
  std::vector<cpu_set_t> mask(64);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int AvailableThreads(const ContainerRoots& roots) {
  const int affinity = roots.affinity_cpus > 0 ? roots.affinity_cpus : AffinityCpus();
  const double quota = CgroupCpus(roots);
  if (quota >= affinity) return std::max(affinity, 1);
  const int whole = static_cast<int>(quota);
  return std::max(whole + (quota > whole ? 1 : 0), 1);
}

std::optional<uint64_t> MemoryLimitBytes(const ContainerRoots& roots) {
  std::optional<uint64_t> least;
  if (const auto kilobytes = ReadKey(roots.proc + "/meminfo", "MemTotal:")) {
    least = *kilobytes * 1024;
  }
  ForEachMemoryLimit(roots, [&least](const MemoryFiles&, const std::string&, uint64_t limit) {
    least = std::min(least.value_or(limit), limit);
  });
  return least;
}

uint64_t AvailableMemoryBytes(const ContainerRoots& roots) {
  std::optional<uint64_t> least;
  if (const auto kilobytes = ReadKey(roots.proc + "/meminfo", "MemAvailable:")) {
    least = *kilobytes * 1024;
  }
  ForEachMemoryLimit(roots, [&least](const MemoryFiles& files, const std::string& folder,
                                     uint64_t limit) {
    const uint64_t usage = ReadNumber(folder + "/" + files.usage).value_or(0);
    const uint64_t reclaimable = ReadKey(folder + "/memory.stat", files.reclaimable).value_or(0);
    const uint64_t working_set = usage - std::min(usage, reclaimable);
    const uint64_t left = limit - std::min(limit, working_set);
    least = std::min(least.value_or(left), left);
  });
  return least.value_or(0);
}

}  // namespace continuo::common

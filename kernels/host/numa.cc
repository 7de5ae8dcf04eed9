// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <system_error>

namespace continuo::kernels::host {
namespace {

constexpr int kMostNodes = 1023;  // Linux's CONFIG_NODES_SHIFT is at most 10

// Reads the first line of a file; empty where there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text, int most) {
  std::vector<int> all;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int* value) {
    const auto [after, error] = std::from_chars(at, end, *value);
    at = after;
    return error == std::errc() && *value >= 0 && *value <= most;
  };
  while (at != end) {
    int first, last;
    if (!number(&first)) return {};
    last = first;
    if (at != end && *at == '-' && (++at == end || !number(&last) || last < first)) {
      return {};
    }
    for (int i = first; i <= last; ++i) all.push_back(i);
    if (at != end && (*at != ',' || ++at == end)) return {};
  }
  return all;
}

std::vector<NumaNode> FindNumaNodes(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails where the machine has more processors than a cpu_set_t.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<NumaNode> nodes;
  for (const int id : ParseCpuList(FirstLine(root + "/online"), kMostNodes)) {
    NumaNode node = {.id = id, .cpus = {}};
    const std::string list = FirstLine(root + "/node" + std::to_string(id) + "/cpulist");
    for (const int cpu : ParseCpuList(list, CPU_SETSIZE - 1)) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Place> PlaceRanks(std::span<const NumaNode> nodes, int num_ranks) {
  std::vector<Place> places(static_cast<size_t>(num_ranks));
  if (nodes.size() < 2) return places;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const size_t first = rank * nodes.size() / places.size();
    const size_t end = std::max(first + 1, (rank + 1) * nodes.size() / places.size());
    for (const NumaNode& node : nodes.subspan(first, end - first)) {
      places[rank].nodes.push_back(node.id);
      places[rank].cpus.insert(places[rank].cpus.end(), node.cpus.begin(), node.cpus.end());
    }
  }
  return places;
}

void BindThread(const Place& place) {
  if (place.cpus.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : place.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);
}

void BindMemory(const Place& place, void* data, size_t bytes) {
  if (place.nodes.empty()) return;
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[(kMostNodes + 1) / kBits] = {};
  for (const int node : place.nodes) {
    mask[static_cast<size_t>(node) / kBits] |= 1UL << static_cast<size_t>(node) % kBits;
  }
  const int policy = place.nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  // The kernel uses one bit less than the number that it is given.
  syscall(SYS_mbind, data, bytes, policy, mask, kMostNodes + 2, 0);
}

}  // namespace continuo::kernels::host

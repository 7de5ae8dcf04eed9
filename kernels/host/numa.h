// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace continuo::kernels::host {

// Processors and the memory that is near to them.
struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // ascending
};

// The machine's nodes that have processors which the calling thread may run on, with those, by
// ascending id; none where the machine does not say. `root` is laid out as Linux's
// /sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node).
std::vector<NumaNode> FindNumaNodes(const std::string& root = "/sys/devices/system/node");

// The numbers of a list as Linux writes it, "0-3,8"; empty where it is not one, or has a number
// above `most`.
std::vector<int> ParseCpuList(const std::string& text, int most);

// Where a rank computes and has its memory. Empty: anywhere.
struct Place {
  std::vector<int> nodes, cpus;
};

// A place for each rank: nodes of its own, or, where there are more ranks than nodes, one with
// others. Empty ones where there is one node, or none is known.
std::vector<Place> PlaceRanks(std::span<const NumaNode> nodes, int num_ranks);

// The calling thread, and those that it starts, run on the place's processors. Where the system
// forbids it, they go on as before.
void BindThread(const Place& place);

// Memory that nobody has touched comes from the place's nodes, by turns, or from others when they
// are full. Where the system forbids that, as containers may, it comes from where its first user
// runs.
void BindMemory(const Place& place, void* data, size_t bytes);

}  // namespace continuo::kernels::host

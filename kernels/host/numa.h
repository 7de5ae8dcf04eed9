// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace continuo::kernels::host {

// A node of processors and the memory near them.
struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // ascending
};

// Returns the machine's nodes, by ascending id, with the processors that the calling thread may run
// on; nodes without such processors are left out. Empty where the machine does not report them.
// `root` is laid out as Linux's /sys/devices/system/node
// (Documentation/ABI/stable/sysfs-devices-node).
std::vector<NumaNode> FindNumaNodes(const std::string& root = "/sys/devices/system/node");

// Parses a list of numbers as Linux writes it, "0-3,8". Empty where the text is no such list, or
// has a number above `most`.
std::vector<int> ParseCpuList(const std::string& text, int most);

// The nodes on which a rank computes and has its memory. An empty list allows all.
struct Place {
  std::vector<int> nodes, cpus;
};

// Gives each rank a place: nodes of its own, or, where there are more ranks than nodes, a node
// shared with others. Places are empty where there is one node, or none is known.
std::vector<Place> PlaceRanks(std::span<const NumaNode> nodes, int num_ranks);

// Makes the calling thread, and threads that it starts, run on the place's processors. Does nothing
// where the system forbids it.
void BindThread(const Place& place);

// Makes memory that nobody has touched come from the place's nodes in rotation, or from others when
// they are full. Where the system forbids that, as containers may, it comes from the node where its
// first user runs.
void BindMemory(const Place& place, void* data, size_t bytes);

}  // namespace continuo::kernels::host

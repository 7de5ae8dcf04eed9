// SPDX-License-Identifier: Apache-2.0
// Tests nodes that files describe, ranks on nodes, and threads that stay there. It runs on machines
// with one node, too: the nodes are made up from the processors at hand.
#include "kernels/host/numa.h"

#include <sched.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_replica.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "tests/testing/temp_folder.h"

namespace continuo::kernels::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Processors that the calling thread may run on.
std::vector<int> Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// A folder laid out as /sys/devices/system/node.
class NodeFolder {
 public:
  explicit NodeFolder(const std::string& online) { Write("online", online); }
  const std::string& path() const { return path_; }
  void AddNode(int id, const std::string& cpus) {
    const std::string folder = "node" + std::to_string(id);
    std::filesystem::create_directory(path_ + "/" + folder);
    Write(folder + "/cpulist", cpus);
  }

 private:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name) << text << "\n";
  }
  const testing::TempFolder temp_;
  const std::string path_ = temp_.path();
};

TEST(NumaTest, ListsAreReadAsLinuxWritesThem) {
  EXPECT_THAT(host::ParseCpuList("0", 9), ElementsAre(0));
  EXPECT_THAT(host::ParseCpuList("0-2,5,7-8", 9), ElementsAre(0, 1, 2, 5, 7, 8));
  for (const char* broken : {"", "a", "1-", "-1", "1,", ",1", "1-2-3", "3-10", "3-1", "0,3-1", "10",
                             "1;2", "99999999999999999999"}) {
    EXPECT_THAT(host::ParseCpuList(broken, 9), IsEmpty()) << broken;
  }
}

TEST(NumaTest, NodesHaveTheProcessorsThatMayBeUsed) {
  const int cpu = Allowed().back();
  NodeFolder folder("0,2-4");
  folder.AddNode(0, "");  // memory alone
  folder.AddNode(2, std::to_string(cpu));
  folder.AddNode(3, "broken");
  folder.AddNode(5, std::to_string(cpu));  // not online
  const std::vector<host::NumaNode> nodes = host::FindNumaNodes(folder.path());
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].id, 2);
  EXPECT_THAT(nodes[0].cpus, ElementsAre(cpu));
  EXPECT_THAT(host::FindNumaNodes("/nowhere"), IsEmpty());
  std::thread([&] {
    host::BindThread({.nodes = {}, .cpus = {Allowed().front()}});
    for (const host::NumaNode& node : host::FindNumaNodes()) EXPECT_EQ(node.cpus, Allowed());
  }).join();
}

TEST(NumaTest, RanksAreSpreadOverTheNodes) {
  const std::vector<host::NumaNode> nodes = {{0, {0, 1}}, {1, {2, 3}}, {4, {8, 9}}};
  const auto nodes_of = [&](size_t num_nodes, int num_ranks) {
    std::vector<std::vector<int>> all;
    for (const host::Place& place :
         host::PlaceRanks(std::span(nodes).first(num_nodes), num_ranks)) {
      all.push_back(place.nodes);
    }
    return all;
  };
  using Nodes = std::vector<std::vector<int>>;
  EXPECT_EQ(nodes_of(0, 2), (Nodes{{}, {}}));
  EXPECT_EQ(nodes_of(1, 2), (Nodes{{}, {}}));  // one node: ranks may be anywhere
  EXPECT_EQ(nodes_of(2, 1), (Nodes{{0, 1}}));
  EXPECT_EQ(nodes_of(2, 2), (Nodes{{0}, {1}}));
  EXPECT_EQ(nodes_of(2, 4), (Nodes{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(nodes_of(3, 2), (Nodes{{0}, {1, 4}}));
  EXPECT_EQ(nodes_of(3, 4), (Nodes{{0}, {0}, {1}, {4}}));
  EXPECT_THAT(host::PlaceRanks(nodes, 2)[1].cpus, ElementsAre(2, 3, 8, 9));
}

TEST(NumaTest, ThreadsOfARankStayAtItsPlace) {
  const std::vector<int> cpus = Allowed();
  // Two nodes, even where there is one processor.
  const std::vector<host::NumaNode> nodes = {{0, {cpus.front()}}, {1, {cpus.back()}}};
  CpuReplica replica(2, "scalar", nodes);
  EXPECT_EQ(replica.placement(), "NUMA node 0; NUMA node 1");
  EXPECT_EQ(CpuReplica(2, "scalar", std::span(nodes).first(1)).placement(), "");
  for (int i = 0; i < 2; ++i) {
    const auto rank = replica.MakeRank(i, 3);
    ASSERT_TRUE(rank.ok());
    std::thread([&] {
      rank->device->BindThread();
      std::latch all(3);  // so that each thread has one
      rank->device->ParallelFor(3, [&](int) {
        all.arrive_and_wait();
        EXPECT_THAT(Allowed(), ElementsAre(nodes[static_cast<size_t>(i)].cpus[0]));
      });
    }).join();
    // Node 1 need not exist: the memory is there all the same.
    const auto memory = rank->device->Allocate(3 << 20);
    ASSERT_TRUE(memory.ok());
    std::memset(*memory, 7, 3 << 20);
    rank->device->Free(*memory);
  }
  EXPECT_EQ(Allowed(), cpus);  // this thread was not bound
}

}  // namespace
}  // namespace continuo::kernels::cpu

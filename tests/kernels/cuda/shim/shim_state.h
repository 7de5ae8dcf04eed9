// SPDX-License-Identifier: Apache-2.0
#pragma once

// State that the shim's files share. Tests include cuda_shim.h.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
using Work = std::function<void()>;
// Makes the work of one enqueueing, since graphs enqueue it again and again. Called with
// State::mutex held.
using WorkMaker = std::function<Work()>;
}  // namespace continuo::testing

// The opaque types of the runtime and of NCCL.
struct CUstream_st {
  int device = 0;
  std::deque<std::function<void()>> work;  // guarded by State::mutex, like the following
  bool running = false;
  bool closing = false;
  bool capturing = false;
  int64_t num_captures = 0;  // begun or ended
  std::vector<continuo::testing::WorkMaker> captured;
  std::set<ncclComm_t> captured_comms;
  std::thread thread;
};

// A captured graph, and its executable.
struct CUgraph_st {
  std::vector<continuo::testing::WorkMaker> work;
  std::set<ncclComm_t> comms;  // communicators of its collectives
};
struct CUgraphExec_st {
  CUgraph_st graph;
  int device = 0;
};

struct CUevent_st {
  int device = 0;
  int64_t recorded = 0, reached = 0;  // counts of cudaEventRecord
  int num_waits = 0;                  // waits that streams have not finished
  bool timed = false;
  int64_t when = 0;  // State::milliseconds when it was last reached
};

namespace continuo::testing {
struct Clique;
}

struct ncclComm {
  continuo::testing::Clique* clique = nullptr;
  int rank = 0, device = 0;
  bool aborted = false;
  int polls_in_progress = 0;
  continuo::testing::Work enqueue;  // work for when the calls are over
  bool joining = true;
  int64_t num_enqueued = 0, num_finished = 0;  // collectives, those in a group one by one
  ncclResult_t async_error = ncclSuccess;
  bool in_call = false;
};

namespace continuo::testing {

// One collective: ranks arrive, and the last one moves the bytes.
struct Meeting {
  std::string what;  // name, count and type; the same for all ranks
  std::map<int, std::pair<const void*, void*>> buffers;  // send and receive buffers by rank
  bool done = false;
};

// The ranks of one ncclUniqueId.
struct Clique {
  int size = 0;
  std::map<int, ncclComm*> joined;
  std::map<int64_t, Meeting> meetings;
  int num_ended = 0;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  ShimOptions options;

  std::map<std::pair<int, std::string>, int> num_calls;
  std::optional<ShimCall> to_fail;
  int error_to_fail = 0;
  bool failed = false;
  int64_t milliseconds = 0;           // the devices' clock
  std::map<int, cudaError_t> broken;  // devices
  std::map<int, ShimFault> planned;   // by device
  std::vector<std::string> violations;

  std::map<void*, std::pair<int, size_t>> memory;  // device and bytes of each allocation
  std::set<void*> pinned;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<void*> blas_handles;
  // Algorithms of cuBLASLt that were checked for another number of rows than they were found for:
  // index, sizes of the matrix, and both numbers.
  std::set<std::array<uint64_t, 5>> checked_algorithms;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> graph_execs;
  std::set<ncclComm_t> comms;                        // neither aborted nor destroyed
  std::vector<std::unique_ptr<ncclComm>> all_comms;  // work that refers to them may be left
  std::map<std::string, Clique> cliques;

  std::map<int, int> num_collectives;
  std::set<std::pair<int, int>> hanging_collectives;  // device, count
  std::set<int> hanging_inits, hanging_aborts, hanging_streams;
};

State& TheState();
// The current device of the calling thread.
int& CurrentDevice();
// Counts a call, at which planned faults come, and returns whether it is the one that fails. Called
// with the mutex held.
bool CountCall(State& state, const char* function, int device);
// Adds work to a stream, or to what it captures. Called with the mutex held.
void Enqueue(State& state, cudaStream_t stream, Work work);
void EnqueueMade(State& state, cudaStream_t stream, WorkMaker maker);

}  // namespace continuo::testing

// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that kernels/cuda calls, in non-blocking mode.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/shim/shim_state.h"

using continuo::testing::Clique;
using continuo::testing::CountCall;
using continuo::testing::CurrentDevice;
using continuo::testing::EnqueueMade;
using continuo::testing::Meeting;
using continuo::testing::State;
using continuo::testing::TheState;
using continuo::testing::Work;

namespace {

using Combine = std::function<void(Meeting&)>;

struct Collective {
  ncclComm_t comm;
  cudaStream_t stream;
  std::string what;
  const void* send;
  void* receive;
  Combine combine;
};

// The group depth of the calling thread.
struct GroupDepth {
  int depth = 0;
  ~GroupDepth() {
    if (depth == 0) return;
    const std::lock_guard lock(TheState().mutex);
    TheState().violations.push_back("a group that did not end before its thread");
  }
};
thread_local GroupDepth group_depth;
thread_local std::vector<Collective> group;
thread_local bool group_fails = false;  // one of its calls has failed

size_t Width(ncclDataType_t type) { return type == ncclFloat32 ? 4 : 1; }

// Locks and counts the call.
class Call {
 public:
  Call(const char* function, int device) : state_(TheState()), lock_(state_.mutex) {
    fails_ = CountCall(state_, function, device);
  }
  // A call with `comm`, which no other thread may call meanwhile.
  Call(const char* function, ncclComm_t comm) : Call(function, comm->device) {
    if (comm->in_call) Violation("two threads call NCCL for one communicator");
    if (!state_.comms.contains(comm))
      Violation(absl::StrCat(function, " after the communicator's end"));
    comm->in_call = true;
    lock_.unlock();
    std::this_thread::yield();
    lock_.lock();
    comm->in_call = false;
  }

  bool fails() const { return fails_; }
  ncclResult_t error() const {
    return state_.error_to_fail != 0 ? static_cast<ncclResult_t>(state_.error_to_fail)
                                     : ncclSystemError;
  }
  State& state() { return state_; }
  std::unique_lock<std::mutex>& lock() { return lock_; }
  ncclResult_t Violation(std::string what) {
    state_.violations.push_back(std::move(what));
    return ncclInvalidUsage;
  }

 private:
  State& state_;
  std::unique_lock<std::mutex> lock_;
  bool fails_ = false;
};

// Runs on the stream's thread and meets the other ranks.
void Meet(const Collective& c, int64_t index, bool hangs, int count) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  ncclComm_t comm = c.comm;
  if (hangs || comm->async_error != ncclSuccess) {
    state.changed.wait(lock, [&] {
      return comm->aborted || (comm->async_error == ncclSuccess &&
                               !state.hanging_collectives.contains({comm->device, count}));
    });
  }
  if (comm->aborted) return;
  Meeting& meeting = comm->clique->meetings[index];
  if (meeting.what.empty()) meeting.what = c.what;
  if (meeting.what != c.what) {
    state.violations.push_back(absl::StrCat("ranks meet in ", meeting.what, " and ", c.what));
  }
  meeting.buffers[comm->rank] = {c.send, c.receive};
  if (static_cast<int>(meeting.buffers.size()) == comm->clique->size) {
    c.combine(meeting);
    meeting.done = true;
    state.changed.notify_all();
  }
  state.changed.wait(lock, [&] { return meeting.done || comm->aborted; });
  if (meeting.done) {
    ++comm->num_finished;
  } else {
    meeting.buffers.erase(comm->rank);  // no rank touches them any more
  }
}

// A thread of NCCL enqueues while the call is in progress.
ncclResult_t EnqueueAll(Call& call, const std::vector<Collective>& collectives) {
  State& state = call.state();
  if (collectives.empty()) return ncclSuccess;
  ncclComm_t comm = collectives[0].comm;
  const auto enqueue = [&state, comm, collectives,
                        num_captures = collectives[0].stream->num_captures] {
    bool is_first = true;
    for (const Collective& c : collectives) {
      if (c.stream->num_captures != num_captures) {
        state.violations.push_back("a capture ended while NCCL enqueued to it");
      }
      if (c.stream->capturing) c.stream->captured_comms.insert(comm);
      EnqueueMade(state, c.stream, [&state, c, is_first]() -> Work {
        int& count = state.num_collectives[c.comm->device];  // a group counts as one
        count += is_first ? 1 : 0;
        const bool hangs = state.hanging_collectives.contains({c.comm->device, count});
        return [c, index = c.comm->num_enqueued++, hangs, count] { Meet(c, index, hangs, count); };
      });
      is_first = false;
    }
  };
  comm->polls_in_progress = state.options.in_progress_polls;
  if (comm->polls_in_progress > 0) {
    comm->enqueue = enqueue;
    return ncclInProgress;
  }
  enqueue();
  return ncclSuccess;
}

// Returns whether graphs have collectives of a communicator of the clique.
bool IsInGraphs(const State& state, const Clique& clique) {
  const auto has = [&](const CUgraph_st& graph) {
    return std::ranges::any_of(graph.comms, [&](ncclComm_t c) { return c->clique == &clique; });
  };
  return std::ranges::any_of(state.graphs, [&](cudaGraph_t graph) { return has(*graph); }) ||
         std::ranges::any_of(state.graph_execs,
                             [&](cudaGraphExec_t exec) { return has(exec->graph); });
}

ncclResult_t Submit(Call& call, Collective collective) {
  if (call.fails()) {
    if (group_depth.depth > 0) group_fails = true;
    return call.error();
  }
  ncclComm_t comm = collective.comm;
  if (comm->aborted || comm->joining || comm->polls_in_progress > 0) {
    return call.Violation(absl::StrCat(collective.what, " while a call is in progress"));
  }
  if (collective.stream->device != comm->device)
    return call.Violation("a stream of another device");
  if (group_depth.depth > 0) {
    group.push_back(std::move(collective));
    return ncclSuccess;
  }
  return EnqueueAll(call, {std::move(collective)});
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "system error of the shim" : "error of the shim";
}
const char* ncclGetLastError(ncclComm_t) { return "what the shim says of it"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Call call("ncclGetUniqueId", CurrentDevice());
  static int next = 0;
  std::memset(id, 0, sizeof(*id));
  const int number = ++next;
  std::memcpy(id, &number, sizeof(number));
  return call.fails() ? call.error() : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Call call("ncclCommInitRankConfig", CurrentDevice());
  State& state = call.state();
  *comm = nullptr;
  if (call.fails()) return call.error();
  if (config->blocking != 0) return call.Violation("a communicator that blocks");
  Clique& clique = state.cliques[std::string(id.internal, sizeof(id.internal))];
  clique.size = size;
  for (const auto& [other, joined] : clique.joined) {
    if (other == rank || joined->device == CurrentDevice()) {
      return call.Violation("two ranks of one number or device");
    }
  }
  state.all_comms.push_back(std::make_unique<ncclComm>());
  *comm = state.all_comms.back().get();
  (*comm)->clique = &clique;
  (*comm)->rank = rank;
  (*comm)->device = CurrentDevice();
  state.comms.insert(*comm);
  if (!state.hanging_inits.contains(CurrentDevice())) clique.joined[rank] = *comm;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Call call("ncclCommGetAsyncError", comm);
  if (call.fails()) return call.error();
  *error = comm->async_error;
  if (comm->async_error != ncclSuccess) return ncclSuccess;
  if (comm->joining) {
    if (static_cast<int>(comm->clique->joined.size()) == comm->clique->size) comm->joining = false;
    *error = ncclInProgress;
  } else if (comm->polls_in_progress > 0) {
    *error = ncclInProgress;
    if (--comm->polls_in_progress == 0) std::exchange(comm->enqueue, {})();
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  Call call("ncclGroupStart", CurrentDevice());
  if (call.fails()) return call.error();
  ++group_depth.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Call call("ncclGroupEnd", CurrentDevice());
  if (group_depth.depth == 0) return call.Violation("a group that did not start");
  --group_depth.depth;
  const std::vector<Collective> collectives = std::move(group);
  group.clear();
  if (std::exchange(group_fails, false) || call.fails()) return call.error();
  return EnqueueAll(call, collectives);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclAllReduce", comm);
  if (type != ncclFloat32 || op != ncclSum)
    return call.Violation("an AllReduce that is no f32 sum");
  return Submit(call, {comm, stream, absl::StrCat("AllReduce of ", count), send, receive,
                       [count](Meeting& meeting) {
                         std::vector<float> sum(count);
                         for (const auto& [rank, buffers] : meeting.buffers) {
                           const auto* x = static_cast<const float*>(buffers.first);
                           for (size_t i = 0; i < count; ++i) sum[i] += x[i];
                         }
                         for (const auto& [rank, buffers] : meeting.buffers) {
                           std::memcpy(buffers.second, sum.data(), count * sizeof(float));
                         }
                       }});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclAllGather", comm);
  const size_t bytes = count * Width(type);
  return Submit(call, {comm, stream, absl::StrCat("AllGather of ", bytes), send, receive,
                       [bytes](Meeting& meeting) {
                         for (const auto& [to, buffers] : meeting.buffers) {
                           for (const auto& [from, sent] : meeting.buffers) {
                             std::memcpy(static_cast<char*>(buffers.second) + from * bytes,
                                         sent.first, bytes);
                           }
                         }
                       }});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclBroadcast", comm);
  const size_t bytes = count * Width(type);
  return Submit(call, {comm, stream, absl::StrCat("Broadcast of ", bytes, " from ", root), send,
                       receive, [bytes, root](Meeting& meeting) {
                         for (const auto& [to, buffers] : meeting.buffers) {
                           std::memmove(buffers.second, meeting.buffers[root].first, bytes);
                         }
                       }});
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Call call("ncclCommAbort", comm);
  State& state = call.state();
  state.changed.wait(call.lock(), [&] { return !state.hanging_aborts.contains(comm->device); });
  comm->aborted = true;
  if (comm->enqueue) std::exchange(comm->enqueue, {})();  // waits for its thread
  state.changed.notify_all();
  // The last one of a process ends all, when no graph needs them any more.
  Clique& clique = *comm->clique;
  if (++clique.num_ended == clique.size) {
    state.changed.wait(call.lock(), [&] { return !IsInGraphs(state, clique); });
  }
  state.comms.erase(comm);
  return call.fails() ? call.error() : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Call call("ncclCommDestroy", comm);
  if (comm->num_enqueued != comm->num_finished)
    call.Violation("destroyed before its work was done");
  // The real library's last call waits for them.
  if (++comm->clique->num_ended == comm->clique->size && IsInGraphs(call.state(), *comm->clique)) {
    call.Violation("all destroyed before their graphs");
  }
  comm->aborted = true;
  call.state().comms.erase(comm);
  return call.fails() ? call.error() : ncclInProgress;
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/shim/cuda_shim.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/shim/shim_state.h"

namespace continuo::testing {

State& TheState() {
  static State* const state = new State;
  return *state;
}

int& CurrentDevice() {
  thread_local int device = 0;
  return device;
}

bool CountCall(State& state, const char* function, int device) {
  const int count = ++state.num_calls[{device, function}];
  const auto planned = state.planned.find(device);
  if (planned != state.planned.end() && planned->second.from == ShimCall{device, function, count}) {
    const ShimFault fault = std::move(planned->second);
    state.planned.erase(planned);
    if (fault.also) fault.also();
    if (fault.hangs) {
      state.hanging_streams.insert(device);
    } else {
      state.broken[device] = fault.error;
    }
  }
  if (!state.to_fail.has_value() || *state.to_fail != ShimCall{device, function, count})
    return false;
  state.to_fail.reset();
  state.failed = true;
  return true;
}

void Enqueue(State& state, cudaStream_t stream, Work work) {
  EnqueueMade(state, stream, [work = std::move(work)] { return work; });
}

void EnqueueMade(State& state, cudaStream_t stream, WorkMaker maker) {
  CONTINUO_CHECK(state.streams.contains(stream));
  if (stream->capturing) {
    stream->captured.push_back(std::move(maker));
    return;
  }
  stream->work.push_back(maker());
  state.changed.notify_all();
}

std::string ToString(const ShimCall& call) {
  return absl::StrCat("call ", call.count, " of ", call.function, " on cuda:", call.device);
}

void CudaShim::Advance(int64_t milliseconds) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.milliseconds += milliseconds;
}

void CudaShim::Reset(const ShimOptions& options) {
  for (const std::string& alive : Alive()) {
    std::fprintf(stderr, "alive: %s\n", alive.c_str());
    CONTINUO_CHECK(!"something of the last test is alive");
  }
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.options = options;
  state.num_calls.clear();
  state.to_fail.reset();
  state.failed = false;
  state.broken.clear();
  state.planned.clear();
  state.violations.clear();
  state.checked_algorithms.clear();
  state.cliques.clear();
  state.all_comms.clear();
  state.num_collectives.clear();
  state.hanging_collectives.clear();
  state.hanging_inits.clear();
  state.hanging_aborts.clear();
  state.hanging_streams.clear();
  CurrentDevice() = 0;
}

int CudaShim::NumCalls(int device, const std::string& function) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.num_calls.find({device, function});
  return found == state.num_calls.end() ? 0 : found->second;
}

std::vector<ShimCall> CudaShim::Calls() {
  constexpr std::array<std::string_view, 2> kPolls = {"cudaEventQuery", "ncclCommGetAsyncError"};
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  std::vector<ShimCall> calls;
  for (const auto& [key, count] : state.num_calls) {
    const bool polls = std::find(kPolls.begin(), kPolls.end(), key.second) != kPolls.end();
    for (int i = 1; i <= (polls ? std::min(count, 2) : count); ++i) {
      calls.push_back({key.first, key.second, i});
    }
  }
  return calls;
}

std::vector<std::string> CudaShim::Alive() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  std::vector<std::string> alive;
  for (const auto& [data, what] : state.memory) {
    alive.push_back(absl::StrCat(what.second, " bytes on cuda:", what.first));
  }
  for (size_t i = 0; i < state.pinned.size(); ++i) alive.push_back("pinned memory");
  for (const cudaStream_t s : state.streams)
    alive.push_back(absl::StrCat("stream on cuda:", s->device));
  for (const cudaEvent_t e : state.events)
    alive.push_back(absl::StrCat("event on cuda:", e->device));
  for (size_t i = 0; i < state.blas_handles.size(); ++i) alive.push_back("handle of cuBLASLt");
  for (size_t i = 0; i < state.graphs.size() + state.graph_execs.size(); ++i) {
    alive.push_back("graph");
  }
  for (const ncclComm_t c : state.comms)
    alive.push_back(absl::StrCat("communicator on cuda:", c->device));
  return alive;
}

std::vector<std::string> CudaShim::Violations() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.violations;
}

void CudaShim::Fail(const ShimCall& call, int error) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.to_fail = call;
  state.error_to_fail = error;
  state.failed = false;
}

bool CudaShim::Failed() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.failed;
}

void CudaShim::Break(int device, cudaError_t error) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.broken[device] = error;
}

void CudaShim::Plan(const ShimFault& fault) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.planned[fault.from.device] = fault;
}

void CudaShim::HangCollective(int device, int count) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.hanging_collectives.insert({device, count});
}

void CudaShim::HangInit(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.hanging_inits.insert(device);
}

void CudaShim::HangAbort(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.hanging_aborts.insert(device);
}

void CudaShim::HangStreams(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.hanging_streams.insert(device);
}

void CudaShim::ReleaseHangs() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.hanging_collectives.clear();
  state.hanging_aborts.clear();
  state.hanging_streams.clear();
  state.changed.notify_all();
}

void CudaShim::SetAsyncError(int device, ncclResult_t error) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (const ncclComm_t comm : state.comms) {
    if (comm->device == device) comm->async_error = error;
  }
  state.changed.notify_all();
}

int CudaShim::NumCollectives(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.num_collectives[device];
}

void CudaShim::AwaitCollectives(int device, int count) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.num_collectives[device] >= count; });
}

cudaError_t CudaShim::Launch(const char* name, cudaStream_t stream, std::function<void()> work) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (CountCall(state, name, stream->device)) return cudaErrorLaunchFailure;
  if (const auto broken = state.broken.find(stream->device); broken != state.broken.end()) {
    return broken->second;
  }
  Enqueue(state, stream, std::move(work));
  return cudaSuccess;
}

cudaError_t CudaShim::Refuse(const std::string& what) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.violations.push_back(what);
  return cudaErrorInvalidValue;
}

}  // namespace continuo::testing

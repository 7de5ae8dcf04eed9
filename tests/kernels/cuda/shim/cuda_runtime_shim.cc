// SPDX-License-Identifier: Apache-2.0
// The functions of libcudart that kernels/cuda calls.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/shim/shim_state.h"

using continuo::testing::CountCall;
using continuo::testing::CurrentDevice;
using continuo::testing::Enqueue;
using continuo::testing::State;
using continuo::testing::TheState;

namespace {

constexpr int kPoison = 0xff;                  // NaN in every float type
constexpr size_t kPoisoned = size_t{1} << 20;  // at the start of an allocation: pages cost time

// Locks and counts the call. to_fail() says whether it is the one that fails.
class Call {
 public:
  Call(const char* function, int device, cudaError_t error = cudaErrorUnknown)
      : state_(TheState()), lock_(state_.mutex) {
    fails_ = CountCall(state_, function, device);
    error_ = state_.error_to_fail != 0 ? static_cast<cudaError_t>(state_.error_to_fail) : error;
    if (const auto broken = state_.broken.find(device); broken != state_.broken.end()) {
      fails_ = true;
      error_ = broken->second;
    }
  }
  explicit Call(const char* function) : Call(function, CurrentDevice()) {}

  bool fails() const { return fails_; }
  cudaError_t result() const { return fails_ ? error_ : cudaSuccess; }
  State& state() { return state_; }
  std::unique_lock<std::mutex>& lock() { return lock_; }
  cudaError_t Violation(const char* what) {
    state_.violations.emplace_back(what);
    return cudaErrorInvalidValue;
  }

 private:
  State& state_;
  std::unique_lock<std::mutex> lock_;
  bool fails_ = false;
  cudaError_t error_ = cudaSuccess;
};

int64_t Used(const State& state, int device) {
  int64_t used = 0;
  for (const auto& [data, what] : state.memory) {
    if (what.first == device) used += static_cast<int64_t>(what.second);
  }
  const auto num_graphs = std::count_if(state.graph_execs.begin(), state.graph_execs.end(),
                                        [&](const auto* exec) { return exec->device == device; });
  return used + num_graphs * state.options.devices[device].graph_bytes;
}
int64_t Free(const State& state, int device) {
  return state.options.devices[device].free_bytes - Used(state, device);
}

int NumDevices(const State& state) { return static_cast<int>(state.options.devices.size()); }

// Checks a call that may wait for the work of the device and of those that have access to its
// memory, and that keeps all launches waiting meanwhile: that work must not wait for this device.
void RefuseToWait(Call& call, const char* function) {
  State& state = call.state();
  if (state.to_fail.has_value() || state.failed || !state.broken.empty())
    return;  // aborted work does not count
  for (ncclComm_t own : state.comms) {
    if (own->device != CurrentDevice() || own->clique == nullptr) continue;
    for (const auto& [rank, other] : own->clique->joined) {
      if (other->aborted || other->num_enqueued <= own->num_enqueued) continue;
      state.violations.push_back(absl::StrCat(function, " on cuda:", own->device, " while cuda:",
                                              other->device, " waits for it in a collective"));
    }
  }
}

// The body of a stream's thread.
void RunStream(cudaStream_t stream) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] {
      return stream->closing ||
             (!stream->work.empty() && !state.hanging_streams.contains(stream->device));
    });
    if (stream->work.empty() || state.hanging_streams.contains(stream->device)) return;  // closing
    const std::function<void()> work = std::move(stream->work.front());
    stream->work.pop_front();
    stream->running = true;
    lock.unlock();
    work();
    lock.lock();
    stream->running = false;
    state.changed.notify_all();
  }
}

bool Idle(cudaStream_t stream) { return stream->work.empty() && !stream->running; }

// Enqueues a copy of `rows` rows.
cudaError_t Copy(Call& call, void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                 size_t width, size_t rows, cudaStream_t stream) {
  if (call.fails()) return call.result();
  if (width > dst_pitch || width > src_pitch) return call.Violation("a copy wider than its pitch");
  Enqueue(call.state(), stream, [=] {
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(dst) + row * dst_pitch,
                  static_cast<const char*>(src) + row * src_pitch, width);
    }
    const std::lock_guard lock(TheState().mutex);
    ++TheState().milliseconds;
  });
  return cudaSuccess;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorShim";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "error of the shim";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) {
  Call call("cudaDriverGetVersion");
  *version = call.state().options.driver_version;
  return call.result();
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  Call call("cudaRuntimeGetVersion");
  *version = CUDART_VERSION;
  return call.result();
}

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount");
  *count = NumDevices(call.state());
  if (call.fails()) return call.result();
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties", device);
  if (device < 0 || device >= NumDevices(call.state())) return cudaErrorInvalidDevice;
  const auto& d = call.state().options.devices[device];
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", d.name.c_str());
  properties->major = d.major;
  properties->minor = d.minor;
  properties->multiProcessorCount = d.num_multiprocessors;
  properties->pciDomainID = d.pci_domain;
  properties->pciBusID = d.pci_bus;
  properties->pciDeviceID = d.pci_device;
  return call.result();
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice", device);
  if (call.fails()) return call.result();
  if (device < 0 || device >= NumDevices(call.state())) return cudaErrorInvalidDevice;
  CurrentDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Call call("cudaMemGetInfo");
  const auto& d = call.state().options.devices[CurrentDevice()];
  *free = static_cast<size_t>(Free(call.state(), CurrentDevice()));
  *total = static_cast<size_t>(d.total_bytes);
  return call.result();
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  Call call("cudaMalloc", CurrentDevice(), cudaErrorMemoryAllocation);
  const int device = CurrentDevice();
  if (call.fails()) return call.result();
  RefuseToWait(call, "cudaMalloc");
  if (static_cast<int64_t>(bytes) > Free(call.state(), device)) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*data, kPoison, std::min(bytes, kPoisoned));
  call.state().memory[*data] = {device, bytes};
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  Call call("cudaFree");
  if (data == nullptr) return call.result();
  const auto found = call.state().memory.find(data);
  if (found == call.state().memory.end()) {
    return call.Violation("cudaFree of what is not allocated");
  }
  RefuseToWait(call, "cudaFree");
  // The real function waits for everything that the device was given.
  call.state().changed.wait(call.lock(), [&, device = found->second.first] {
    return std::all_of(call.state().streams.begin(), call.state().streams.end(),
                       [&](cudaStream_t s) { return s->device != device || Idle(s); });
  });
  call.state().memory.erase(data);
  std::free(data);
  return call.result();
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  Call call("cudaMallocHost", CurrentDevice(), cudaErrorMemoryAllocation);
  if (call.fails()) return call.result();
  RefuseToWait(call, "cudaMallocHost");
  *data = std::malloc(bytes);
  call.state().pinned.insert(*data);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  Call call("cudaFreeHost");
  if (call.state().pinned.erase(data) == 0)
    return call.Violation("cudaFreeHost of what is not pinned");
  RefuseToWait(call, "cudaFreeHost");
  std::free(data);
  return call.result();
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  Call call("cudaFuncSetAttribute");
  return call.result();
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Call call("cudaMemcpyAsync", stream->device);
  if (stream->capturing) return call.Violation("a copy while a stream is captured");
  return Copy(call, dst, bytes, src, bytes, bytes, 1, stream);
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  Call call("cudaMemcpy2DAsync", stream->device);
  return Copy(call, dst, dst_pitch, src, src_pitch, width, height, stream);
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  Call call("cudaMemsetAsync", stream->device);
  if (call.fails()) return call.result();
  Enqueue(call.state(), stream, [=] { std::memset(dst, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Call call("cudaStreamCreateWithFlags");
  if (call.fails()) return call.result();
  if (flags != cudaStreamNonBlocking) return call.Violation("a stream that waits for stream 0");
  *stream = new CUstream_st{.device = CurrentDevice()};
  call.state().streams.insert(*stream);
  (*stream)->thread = std::thread(RunStream, *stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call("cudaStreamDestroy", stream->device);
  if (call.state().streams.erase(stream) == 0) return call.Violation("a stream destroyed twice");
  stream->closing = true;
  call.state().changed.notify_all();
  call.lock().unlock();
  stream->thread.join();
  delete stream;
  return call.result();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call("cudaStreamSynchronize", stream->device);
  if (stream->capturing) return call.Violation("a wait for a stream that is captured");
  call.state().changed.wait(call.lock(), [&] { return Idle(stream); });
  return call.result();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Call call("cudaStreamWaitEvent", stream->device);
  if (call.fails()) return call.result();
  ++event->num_waits;
  Enqueue(call.state(), stream, [event, count = event->recorded] {
    std::unique_lock lock(TheState().mutex);
    TheState().changed.wait(lock, [&] { return event->reached >= count; });
    --event->num_waits;
    TheState().changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Call call("cudaStreamBeginCapture", stream->device);
  if (call.fails()) return call.result();
  if (mode != cudaStreamCaptureModeThreadLocal || stream->capturing) {
    return call.Violation("a capture within another, or one that stops other threads");
  }
  stream->capturing = true;
  ++stream->num_captures;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Call call("cudaStreamIsCapturing", stream->device);
  if (call.fails()) return call.result();
  *status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Call call("cudaStreamEndCapture", stream->device);
  if (!stream->capturing) return call.Violation("no capture to end");
  stream->capturing = false;
  ++stream->num_captures;
  CUgraph_st captured = {std::exchange(stream->captured, {}),
                         std::exchange(stream->captured_comms, {})};
  if (call.fails()) return call.result();
  *graph = new CUgraph_st(std::move(captured));
  call.state().graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  Call call("cudaGraphInstantiate");
  if (call.fails()) return call.result();
  RefuseToWait(call, "cudaGraphInstantiate");
  const int device = CurrentDevice();
  if (call.state().options.devices[device].graph_bytes > Free(call.state(), device)) {
    return cudaErrorMemoryAllocation;
  }
  *exec = new CUgraphExec_st{*graph, device};
  call.state().graph_execs.insert(*exec);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  Call call("cudaGraphUpload", stream->device);
  if (call.fails()) return call.result();
  if (!call.state().graph_execs.contains(exec)) return call.Violation("an upload of no graph");
  RefuseToWait(call, "cudaGraphUpload");
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Call call("cudaGraphLaunch", stream->device);
  if (call.fails()) return call.result();
  if (stream->capturing) return call.Violation("a graph launched while its stream is captured");
  for (const auto& maker : exec->graph.work) EnqueueMade(call.state(), stream, maker);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Call call("cudaGraphDestroy");
  if (call.state().graphs.erase(graph) == 0) return call.Violation("a graph destroyed twice");
  delete graph;
  call.state().changed.notify_all();
  return call.result();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Call call("cudaGraphExecDestroy");
  if (call.state().graph_execs.erase(exec) == 0) return call.Violation("a graph destroyed twice");
  RefuseToWait(call, "cudaGraphExecDestroy");
  delete exec;
  call.state().changed.notify_all();
  return call.result();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Call call("cudaEventCreateWithFlags");
  if (call.fails()) return call.result();
  *event =
      new CUevent_st{.device = CurrentDevice(), .timed = (flags & cudaEventDisableTiming) == 0};
  call.state().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call("cudaEventDestroy", event->device);
  if (call.state().events.erase(event) == 0) return call.Violation("an event destroyed twice");
  // The real event is freed when nothing uses it any more.
  const auto is_free = [&] { return event->reached == event->recorded && event->num_waits == 0; };
  call.state().changed.wait(call.lock(),
                            [&] { return is_free() || !call.state().hanging_streams.empty(); });
  if (is_free()) delete event;
  return call.result();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call("cudaEventRecord", event->device);
  if (call.fails()) return call.result();
  if (event->device != stream->device) return call.Violation("an event of another device");
  if (stream->capturing) return call.Violation("an event recorded while its stream is captured");
  Enqueue(call.state(), stream, [event, count = ++event->recorded] {
    const std::lock_guard lock(TheState().mutex);
    event->reached = count;
    event->when = TheState().milliseconds;
    TheState().changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call("cudaEventSynchronize", event->device);
  call.state().changed.wait(call.lock(),
                            [&, count = event->recorded] { return event->reached >= count; });
  return call.result();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  Call call("cudaEventElapsedTime", end->device);
  if (call.fails()) return call.result();
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->timed) return call.Violation("the time of an event that does not take it");
    if (event->recorded == 0) return call.Violation("the time of an event that was never recorded");
    if (event->reached != event->recorded) return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(end->when - begin->when);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call("cudaEventQuery", event->device);
  if (call.fails()) return call.result();
  return event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"

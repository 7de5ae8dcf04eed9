// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_options.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// A device: memory, one in-order queue of work, events, graphs, and the host threads that serve it.
// ops() computes on it. Calls enqueue work; Synchronize and WaitForEvent wait for it. The first
// call that fails is remembered: later ones do nothing, and Synchronize returns its error.
//
// Not thread-safe: each rank owns its own Device.
class Device {
 public:
  virtual ~Device() = default;

  // "cpu/avx2": the device and its instruction-set path; part of the worker's fingerprint.
  virtual std::string name() const = 0;
  // The ops on this device. They live as long as the device.
  virtual const Ops& ops() const = 0;

  // Zeroed memory, aligned to 64 bytes. ResourceExhausted names the number of bytes where there is
  // not enough.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  // Host memory that CopyOut reaches at full speed. ResourceExhausted as for Allocate.
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* data) = 0;
  // Returns whether tensors lie in host memory: the host may then read them in place after
  // Synchronize, and need not copy them out.
  virtual bool SharesHostMemory() const { return false; }

  // `host` may change as soon as CopyIn returns only where dst is small (CUDA: up to 64 MiB), else
  // after Synchronize. CopyOut has written `host` after Synchronize.
  virtual void CopyIn(Tensor dst, const void* host) = 0;
  virtual void CopyOut(void* host, Tensor src) = 0;

  // Waits for all enqueued work. Returns the first error of the device.
  virtual absl::Status Synchronize() = 0;
  // Records an event after all work enqueued so far. WaitForEvent blocks until that work has
  // completed, and returns what Synchronize would. Only the four newest events are valid.
  virtual int64_t RecordEvent() { return 0; }
  virtual absl::Status WaitForEvent(int64_t /*event*/) { return Synchronize(); }
  // Seconds of work between pairs of successive events, summed over the events waited for since the
  // last call. An interval begins when the device starts the first work after an event, so idle
  // time does not count. The first call, made while idle, turns the measurement on and returns 0;
  // so does a device that does not measure.
  virtual double TakeBusySeconds() { return 0; }

  // Enqueues what enqueue() enqueues. Calls with equal keys promise the same ops with the same
  // arguments, addresses included, without copies from or to the host, allocations or waits: a
  // device may capture a graph and replay it instead of calling enqueue(). Returns the error of
  // enqueue() or of the device; after an error nothing is captured.
  virtual absl::Status RunGraph(std::span<const int64_t> /*key*/,
                                absl::FunctionRef<absl::Status()> enqueue) {
    return enqueue();
  }
  // Drops all captured graphs, because memory that they use goes. The device is idle.
  virtual void DropGraphs() {}

  // Makes the calling thread one of those that compute for this device: on a machine with several
  // NUMA nodes it runs beside the device's memory from then on.
  virtual void BindThread() {}
  // Runs body(0) … body(n-1) on the device's host threads and returns when all are done. For host
  // work that a step waits for, such as sampling.
  virtual void ParallelFor(int n, absl::FunctionRef<void(int)> body) = 0;
};

// InvalidArgument names a device or instruction set that this build or machine does not have.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

}  // namespace continuo::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "kernels/cuda/runtime/pinned_buffer.h"
#include "kernels/cuda/runtime/stream.h"
#include "kernels/host/thread_pool.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cuda {

// An array of the host, and its offset in device memory.
struct PackedArray {
  const void* data = nullptr;
  size_t bytes = 0;
  size_t offset = 0;
};

struct CudaContextOptions {
  DeviceInfo device;
  int num_threads = 1;  // host threads of ParallelFor, the caller's included
  bool pdl = true;      // programmatic dependent launch where the device's code has it
  // Scratch memory that ops divide their work by. One that needs more at once makes it grow.
  size_t scratch_bytes = size_t{64} << 20;
};

// The state that the groups of ops of one CUDA device share: the stream, scratch memory, copies,
// events, graphs, and the first failure. After a failure calls enqueue nothing, and Synchronize
// returns it.
//
// Not thread-safe; the thread of the device's rank owns it.
class CudaContext {
 public:
  // ResourceExhausted where there is not enough memory for scratch or for staging copies.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Make(const CudaContextOptions& options);
  // Waits for the stream.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const DeviceInfo& device() const { return options_.device; }
  Stream& stream() { return stream_; }
  KernelStream kernels() const { return stream_.kernels(); }

  bool ok() const { return failure_.ok(); }
  const absl::Status& failure() const { return failure_; }
  // Remembers an error, unless an earlier one is remembered.
  void Keep(const absl::Status& status) { failure_.Update(status); }

  // Calls call(), which enqueues work and returns a cudaError_t, unless something has failed. An
  // error is remembered with `what` in its text.
  template <typename Call>
  void Enqueue(const char* what, Call call) {
    if (!PrepareToEnqueue()) return;
    Keep(CudaStatus(call(), device().index, what));
  }
  // Does the same with a call() that returns an absl::Status.
  template <typename Call>
  void EnqueueStatus(Call call) {
    if (PrepareToEnqueue()) Keep(call());
  }

  // Returns memory of at least so many bytes, for one op at a time. Null after a failure to get it.
  void* Scratch(size_t bytes);
  // Bytes that Scratch has without growing.
  size_t scratch_capacity() const { return scratch_.bytes(); }
  // Counters by which blocks of a grid find the last of them. A kernel finds them zero and leaves
  // them so.
  static constexpr int kNumCounters = 1024;
  uint32_t* counters() const { return static_cast<uint32_t*>(counters_.data()); }
  // Bytes that ops divide their work by.
  size_t scratch_budget() const { return options_.scratch_bytes; }

  // These are as kernels::Device has them.
  void CopyIn(Tensor dst, const void* host);
  // Copies small arrays, whose offsets ascend, to dst by one copy. Bytes between them become
  // anything.
  void CopyInPacked(void* dst, std::span<const PackedArray> arrays);
  void CopyOut(void* host, Tensor src);
  absl::Status Synchronize();
  int64_t RecordEvent();
  absl::Status WaitForEvent(int64_t event);
  double TakeBusySeconds();
  void ParallelFor(int n, absl::FunctionRef<void(int)> body);
  // The first call with a key enqueues, the second also captures, later ones replay (GraphCache).
  absl::Status RunGraph(std::span<const int64_t> key, absl::FunctionRef<absl::Status()> enqueue);
  void DropGraphs();

 private:
  // An event that WaitForEvent knows.
  struct Recorded {
    std::optional<Event> event;  // timed where busy time is measured
    uint64_t staged = 0;         // bytes that had been staged by then
    bool has_begun = false;      // work was enqueued since the event before, and its begin recorded
  };

  CudaContext(const CudaContextOptions& options, Stream stream)
      : options_(options),
        stream_(std::move(stream)),
        pool_(options.num_threads),
        graphs_(options.device.index) {}

  // Makes the device current and notes the begin of work. False after a failure.
  bool PrepareToEnqueue();
  // Records the begin of the first work behind an event, where busy time is measured. Not called
  // while a graph is captured for the first time, since RunGraph has called it before.
  void BeginWork() {
    if (measures_busy_ && !work_begun_) RecordBegin();
  }
  void RecordBegin();
  // Returns room for so many bytes in the staging ring, at most all of it, until they are copied.
  // Null after a failure.
  void* Stage(size_t bytes);

  const CudaContextOptions options_;
  Stream stream_;
  host::ThreadPool pool_;
  absl::Status failure_;
  GraphCache graphs_;
  DeviceBuffer counters_, scratch_;
  std::vector<DeviceBuffer> smaller_scratch_;  // graphs and work in flight know its addresses

  // CopyIn stages small arrays in a ring. The counters grow from the start: bytes staged, and
  // staged bytes that have certainly been copied.
  PinnedBuffer staging_;
  uint64_t staged_ = 0, copied_ = 0;

  std::array<Recorded, 4> events_;
  int64_t num_events_ = 0;
  // The begins of work behind each event, and behind the newest one, where busy time is measured.
  std::array<std::optional<Event>, 5> begins_;
  bool measures_busy_ = false, work_begun_ = false;
  double busy_seconds_ = 0;
};

}  // namespace continuo::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// An event in a stream. Thread-safe. It is timed only on request, since timing costs the device
// time.
class Event {
 public:
  static absl::StatusOr<Event> Make(int device, bool timed = false);

  Event(Event&& other) noexcept
      : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  // Makes the event stand for all work that was enqueued on the stream so far.
  absl::Status Record(cudaStream_t stream);
  // Returns whether the device has completed that work. Before any Record: true.
  absl::StatusOr<bool> Done() const;
  // Waits for that work and returns its error, if it failed.
  absl::Status Synchronize() const;
  // Returns the time between two timed events that the device has reached, the other one first.
  absl::StatusOr<double> SecondsSince(const Event& other) const;
  cudaEvent_t get() const { return event_; }

 private:
  Event(int device, cudaEvent_t event) : device_(device), event_(event) {}
  int device_;
  cudaEvent_t event_;
};

// An in-order queue of work of one device, which waits for no other queue. It must be idle when it
// is destroyed.
class Stream {
 public:
  // pdl: our kernels on it use programmatic dependent launch where their code can (pdl.h).
  static absl::StatusOr<Stream> Make(int device, bool pdl = false);

  Stream(Stream&& other) noexcept
      : device_(other.device_),
        stream_(std::exchange(other.stream_, nullptr)),
        pdl_(other.pdl_),
        shared_(std::move(other.shared_)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    std::swap(pdl_, other.pdl_);
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~Stream();

  // Waits for all work and returns its error, if it failed.
  absl::Status Synchronize();
  // Makes work that is enqueued after this call wait for `event`.
  absl::Status WaitFor(const Event& event);
  int device() const { return device_; }
  cudaStream_t get() const { return stream_; }
  KernelStream kernels() const { return {.stream = stream_, .pdl = pdl_}; }

  // The stream's thread holds this mutex while it captures a graph. Another thread holds it while
  // it enqueues work, which would otherwise become part of that graph.
  std::mutex& capture_mutex() const { return shared_->capture_mutex; }
  // Number of graphs launched on the stream. Any thread may call this.
  int64_t num_graphs() const { return shared_->num_graphs; }
  void CountGraph() { ++shared_->num_graphs; }

 private:
  struct Shared {
    std::mutex capture_mutex;
    std::atomic<int64_t> num_graphs{0};
  };
  Stream(int device, cudaStream_t stream, bool pdl)
      : device_(device), stream_(stream), pdl_(pdl), shared_(std::make_unique<Shared>()) {}
  int device_;
  cudaStream_t stream_;
  bool pdl_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace continuo::kernels::cuda

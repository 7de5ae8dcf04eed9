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

namespace continuo::kernels::cuda {

// A point in a stream's work. Thread-safe; without timing unless it is asked for, since that costs
// the device time.
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

  // From now on the event means all the work that the stream has been given so far.
  absl::Status Record(cudaStream_t stream);
  // Whether the device has done that work. Asked before any Record: true.
  absl::StatusOr<bool> Done() const;
  // Returns when it has, with the error of the work that failed.
  absl::Status Synchronize() const;
  // Between two timed points that the device has reached, the other one first.
  absl::StatusOr<double> SecondsSince(const Event& other) const;
  cudaEvent_t get() const { return event_; }

 private:
  Event(int device, cudaEvent_t event) : device_(device), event_(event) {}
  int device_;
  cudaEvent_t event_;
};

// One in-order queue of work of a device, which waits for no other queue. Destroyed when idle.
class Stream {
 public:
  static absl::StatusOr<Stream> Make(int device);

  Stream(Stream&& other) noexcept
      : device_(other.device_),
        stream_(std::exchange(other.stream_, nullptr)),
        shared_(std::move(other.shared_)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~Stream();

  // Returns when all work is done, with the error of the work that failed.
  absl::Status Synchronize();
  // What is enqueued after this starts after `event`.
  absl::Status WaitFor(const Event& event);
  int device() const { return device_; }
  cudaStream_t get() const { return stream_; }

  // Held by its thread while what it enqueues becomes a graph instead. Another thread holds it
  // where it gives the stream work, which would become part of that graph.
  std::mutex& capture_mutex() const { return shared_->capture_mutex; }
  // Graphs that it has been given. Any thread.
  int64_t num_graphs() const { return shared_->num_graphs; }
  void CountGraph() { ++shared_->num_graphs; }

 private:
  struct Shared {
    std::mutex capture_mutex;
    std::atomic<int64_t> num_graphs{0};
  };
  Stream(int device, cudaStream_t stream)
      : device_(device), stream_(stream), shared_(std::make_unique<Shared>()) {}
  int device_;
  cudaStream_t stream_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace continuo::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace continuo::cuda {

// A point in a stream's work. Thread-safe; made without timing, which costs the device time.
class Event {
 public:
  static absl::StatusOr<Event> Make(int device);

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
      : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();

  // Returns when all work is done, with the error of the work that failed.
  absl::Status Synchronize();
  // What is enqueued after this starts after `event`.
  absl::Status WaitFor(const Event& event);
  int device() const { return device_; }
  cudaStream_t get() const { return stream_; }

 private:
  Stream(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  int device_;
  cudaStream_t stream_;
};

}  // namespace continuo::cuda

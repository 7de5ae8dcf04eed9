// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/gateway/relay/timer.h"

namespace continuo::gateway {

// The streams of one service that are open: their number, its limit, and their end. Thread-safe.
class OpenStreams {
 public:
  static constexpr int kMax = 1024;

  // False if there are as many as there may be.
  bool Add() {
    if (number_.fetch_add(1) < kMax) return true;
    --number_;
    return false;
  }
  void Remove() { --number_; }

  // Ends all streams with OK, those that begin later too, each at its next poll.
  void EndAll() { has_ended_ = true; }
  bool has_ended() const { return has_ended_; }

 private:
  std::atomic<int> number_ = 0;
  std::atomic<bool> has_ended_ = false;
};

// The server's side of a stream that is asked every 100 ms whether something is to be sent. A
// client that does not read is not written to meanwhile. Owns itself until gRPC is done with it.
template <typename Response>
class PolledStream : public grpc::ServerWriteReactor<Response>,
                     public std::enable_shared_from_this<PolledStream<Response>> {
 public:
  static constexpr absl::Duration kInterval = absl::Milliseconds(100);
  // Returns the next response if one is due. The calls come one at a time; what they use outlives
  // the server.
  using Poll = std::function<std::optional<Response>()>;

  // RESOURCE_EXHAUSTED for the client where `open`, which outlives the stream, is at its limit.
  static grpc::ServerWriteReactor<Response>* Start(OpenStreams* open, Timer* timer, Poll poll) {
    const bool has_room = open->Add();
    auto stream = std::make_shared<PolledStream>(has_room ? open : nullptr, timer, std::move(poll));
    stream->self_ = stream;
    if (has_room) {
      stream->Tick();
    } else {
      stream->End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                               "the gateway has its limit of 1024 watchers"));
    }
    return stream.get();
  }

  PolledStream(OpenStreams* open, Timer* timer, Poll poll)
      : open_(open), timer_(timer), poll_(std::move(poll)) {}

  void OnWriteDone(bool ok) override {
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      is_writing_ = false;
      if (!ok && !end_.has_value()) {
        end_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
      }
      end = end_;
    }
    if (end.has_value()) this->Finish(*end);
  }
  void OnCancel() override { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")); }
  void OnDone() override {
    // A timer may keep the stream for a moment longer than `open_` lives.
    const auto self = std::move(self_);
    if (open_ != nullptr) open_->Remove();
  }

 private:
  void Tick() {
    if (open_->has_ended()) return End(grpc::Status::OK);
    bool writes = false;
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      if (!is_writing_) {
        if (std::optional<Response> next = poll_()) {
          response_ = *std::move(next);
          is_writing_ = writes = true;
        }
      }
    }
    if (writes) this->StartWrite(&response_);
    timer_->After(kInterval, [weak = this->weak_from_this()] {
      if (const auto self = weak.lock()) self->Tick();
    });
  }
  // A stream whose write is in flight ends after it.
  void End(const grpc::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      end_ = status;
      if (is_writing_) return;
    }
    this->Finish(status);
  }

  OpenStreams* const open_;  // Null if the stream is not counted.
  Timer* const timer_;
  const Poll poll_;
  std::shared_ptr<PolledStream> self_;  // Until OnDone.
  absl::Mutex mutex_;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);  // Of a stream that ends.
  Response response_;  // Of the write in flight; it changes only while there is none.
};

}  // namespace continuo::gateway

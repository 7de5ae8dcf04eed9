// SPDX-License-Identifier: Apache-2.0
#pragma once

// A generation that survives the loss of its connection. When a call ends UNAVAILABLE, or OK
// without a summary, after responses were received, the request is sent again with these as its
// continuation. So every response is delivered exactly once and in order.

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/protocol/continuation.h"

namespace continuo::cli {

// Says how a Generation retries.
struct GenerationOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // It retries so long without receiving a new response; 0 never reconnects.
  absl::Duration reconnect_for = absl::Seconds(60);
  // The wait before the first retry; it doubles with each one, up to 5 s.
  absl::Duration first_backoff = absl::Milliseconds(100);
  // Called before each call, to add metadata.
  std::function<void(grpc::ClientContext&)> prepare;
  // Called before each retry, with the error that caused it.
  std::function<void(const absl::Status&)> on_retry;
};

// One generation. Run is called once; Cancel may be called from any thread at any time.
class Generation {
 public:
  // The stub must outlive this.
  Generation(v1::InferenceService::StubInterface* stub, v1::GenerateRequest request,
             GenerationOptions options = {});

  // Blocks until the end and passes each response to `take`. Returns OK once the summary was
  // received, whatever the status after it; CANCELLED after Cancel; DATA_LOSS where a response is
  // missing or repeated.
  absl::Status Run(const std::function<void(const v1::GenerateResponse&)>& take);
  void Cancel();

 private:
  absl::Status RunOnce(const std::function<void(const v1::GenerateResponse&)>& take);
  // Blocks until the time has passed or Cancel is called.
  void Pause(absl::Duration duration);

  v1::InferenceService::StubInterface* const stub_;
  v1::GenerateRequest request_;  // From the second call on with a continuation.
  protocol::ReceivedResponses received_;
  const GenerationOptions options_;
  uint64_t next_sequence_ = 0;
  bool complete_ = false;  // The summary was received.

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Of the call in progress.
};

}  // namespace continuo::cli

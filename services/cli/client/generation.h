// SPDX-License-Identifier: Apache-2.0
#pragma once

// One generation that outlives its connection. When the call ends UNAVAILABLE, or OK without a
// summary, after something was received, the same request is sent again with that as its
// continuation, so that every response comes exactly once and in order, whatever happens on the
// way.

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"

namespace continuo::cli {

struct GenerationOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // How long it tries without receiving anything new; 0 never reconnects.
  absl::Duration reconnect_for = absl::Seconds(60);
  // Doubles with each try, up to 5 s.
  absl::Duration first_backoff = absl::Milliseconds(100);
  // Called before each try, for metadata.
  std::function<void(grpc::ClientContext&)> prepare;
  // Told why, before each new try.
  std::function<void(const absl::Status&)> on_retry;
};

// Adds a response to what a continuation has to tell; texts, logprobs and the like are left out.
void MergeReceived(const v1::GenerateResponse& response, v1::GenerateResponse* received);

// Run is called once. Cancel may be called from any thread, also before and after it.
class Generation {
 public:
  // The stub must outlive this.
  Generation(v1::InferenceService::StubInterface* stub, v1::GenerateRequest request,
             GenerationOptions options = {});

  // Blocks until the end. OK also where the status after the summary was not; CANCELLED after
  // Cancel; DATA_LOSS where a response is missing or repeated.
  absl::Status Run(const std::function<void(const v1::GenerateResponse&)>& take);
  void Cancel();

  int num_retries() const { return num_retries_; }

 private:
  absl::Status RunOnce(const std::function<void(const v1::GenerateResponse&)>& take);
  // Until the time has passed or Cancel is called.
  void Pause(absl::Duration duration);

  v1::InferenceService::StubInterface* const stub_;
  v1::GenerateRequest request_;  // With its continuation, from the second try on.
  const GenerationOptions options_;
  int num_retries_ = 0;
  uint64_t next_sequence_ = 0;
  bool complete_ = false;  // The summary was received.

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Of the call in progress.
};

}  // namespace continuo::cli

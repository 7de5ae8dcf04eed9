// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/retry_policy.h"
#include "services/gateway/relay/worker_call.h"
#include "services/gateway/relay/worker_end.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

// The durations of a whole answer on its worker, without the queue.
struct AnswerDurations {
  absl::Duration first;  // from the begin of the prompt to the first token
  absl::Duration rest;   // from there to the last token
};

// One call of a relay to one worker: its lease, its start time and how far it got. Times are those
// of Clock::Elapsed. Belongs to the thread that handles the relay's events.
class Attempt {
 public:
  // Events of the call carry `number`.
  Attempt(int number, Lease lease, absl::Duration start_time)
      : number_(number), lease_(std::move(lease)), start_time_(start_time) {}

  // Takes the call, just made, and starts its first read.
  void Begin(std::shared_ptr<WorkerCall> call);
  void StartRead();
  void Abandon() { call_->Abandon(); }

  // The worker has accepted the request.
  void OnAccepted() { was_accepted_ = true; }
  // The read has ended with a response. True if that is progress: it brings something that the next
  // worker need not compute again.
  bool OnResponse(const v1::GenerateResponse& response);

  // The durations that the worker's summary states. None if they are negative or longer than the
  // call took by this side's clock: such a worker is not believed.
  std::optional<AnswerDurations> DurationsOf(const v1::Timings& timings, absl::Duration now) const;

  // The end of the call, as the retry policy needs it.
  CallFailure FailureOf(WorkerEnd end, const absl::Status& status) const;

  int number() const { return number_; }
  const Lease& lease() const { return lease_; }
  bool is_reading() const { return is_reading_; }
  // For tests; FailureOf has both.
  bool was_accepted() const { return was_accepted_; }
  bool made_progress() const { return made_progress_; }

 private:
  const int number_;
  const Lease lease_;
  const absl::Duration start_time_;
  std::shared_ptr<WorkerCall> call_;
  bool is_reading_ = false;
  bool was_accepted_ = false;
  bool made_progress_ = false;
};

}  // namespace continuo::gateway

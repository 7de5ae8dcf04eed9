// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/attempt.h"

#include "services/protocol/proto_time.h"

namespace continuo::gateway {

void Attempt::Begin(std::shared_ptr<WorkerCall> call) {
  call_ = std::move(call);
  StartRead();
}

void Attempt::StartRead() {
  is_reading_ = true;
  call_->StartRead();
}

bool Attempt::OnResponse(const v1::GenerateResponse& response) {
  is_reading_ = false;
  was_accepted_ = was_accepted_ || response.has_accepted();
  const bool is_progress = response.deltas_size() > 0 || response.prompt_logprobs_size() > 0 ||
                           response.prompt_tokens_size() > 0 || response.has_summary();
  made_progress_ = made_progress_ || is_progress;
  return is_progress;
}

CallFailure Attempt::FailureOf(WorkerEnd end, const absl::Status& status) const {
  return {.end = end,
          .status = status,
          .address = lease_.address(),
          .incarnation = lease_.incarnation(),
          .was_accepted = was_accepted_,
          .made_progress = made_progress_};
}

std::optional<AnswerDurations> Attempt::DurationsOf(const v1::Timings& timings,
                                                    absl::Duration now) const {
  const absl::Duration first = protocol::FromProto(timings.prefill_duration());
  const absl::Duration rest = protocol::FromProto(timings.total_duration()) -
                              protocol::FromProto(timings.queue_duration()) - first;
  if (first < absl::ZeroDuration() || rest < absl::ZeroDuration() ||
      first + rest > now - start_time_) {
    return std::nullopt;
  }
  return AnswerDurations{.first = first, .rest = rest};
}

}  // namespace continuo::gateway

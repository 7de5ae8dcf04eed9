// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/relay_stats.h"

#include <algorithm>
#include <utility>

namespace continuo::gateway {
namespace {

int NumTokens(const v1::GenerateResponse& response) {
  int tokens = 0;
  for (const v1::Delta& delta : response.deltas()) tokens += delta.token_ids_size();
  return tokens;
}

// The names of OpenTelemetry's conventions.
std::string_view FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    case v1::FINISH_REASON_TIME_LIMIT:
      return "time_limit";
    default:
      return "unknown";
  }
}

}  // namespace

RelayStats::RelayStats(std::string requested_model, const protocol::ReceivedResponses& received,
                       RelayObserver* observer, absl::Duration now)
    : requested_model_(std::move(requested_model)),
      observer_(observer),
      start_time_(now),
      tokens_before_(received.num_tokens()),
      without_call_since_(now) {
  report_.model = requested_model_.empty() ? received.accepted().model() : requested_model_;
}

void RelayStats::OnCallStarted(const WorkerLoad& load, bool is_migration, absl::Duration now) {
  num_calls_ += 1;
  if (without_call_since_.has_value()) report_.without_worker += now - *without_call_since_;
  without_call_since_.reset();
  report_.worker = load.worker;
  if (report_.model.empty()) report_.model = load.model;
  if (report_.attempts.size() < RelayReport::kMaxAttempts) {
    report_.attempts.push_back({.worker = load.worker, .begin = now - start_time_});
  }
  if (is_migration) {
    report_.migrations += 1;
    observer_->OnMigration(Labels(), last_reason_);
  }
  report_.pool = load.pool;
  report_.fingerprint = load.fingerprint;
}

void RelayStats::OnAccepted(absl::Duration now) {
  if (accepted_time_.has_value()) return;
  accepted_time_ = now;
  report_.queue = now - start_time_ - report_.without_worker;
  observer_->OnBegun(Labels(), now - start_time_);
}

void RelayStats::OnResponse(const v1::GenerateResponse& response, absl::Duration now) {
  if (response.has_accepted()) {
    OnAccepted(now);
    report_.model = response.accepted().model();
    if (!response.accepted().request_id().empty()) {
      report_.request_id = response.accepted().request_id();
    }
  }
  if (stall_start_.has_value()) {
    const absl::Duration stall = now - *stall_start_;
    observer_->OnStall(Labels(), stall);
    report_.stall += stall;
    stall_start_.reset();
  }
  if (const int tokens = NumTokens(response); tokens > 0) OnTokens(tokens, now);
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      report_.finish_reasons.emplace_back(FinishReasonName(delta.finish_reason()));
    }
  }
  if (response.has_summary()) {
    report_.usage = response.summary().usage();
    report_.prompt_tokens = report_.usage->prompt_tokens();
  }
}

void RelayStats::OnTokens(int tokens, absl::Duration now) {
  if (last_token_time_.has_value()) {
    const absl::Duration gap = now - *last_token_time_;
    observer_->OnTokens(Labels(), gap, tokens);
    report_.longest_gap = std::max(report_.longest_gap, gap);
  } else {
    report_.time_to_first_token = now - start_time_;
    report_.prefill = now - accepted_time_.value_or(now);
    observer_->OnFirstToken(Labels(), report_.time_to_first_token);
  }
  last_token_time_ = now;
}

void RelayStats::OnCallEnded(std::string_view reason, bool migrates, absl::Duration now) {
  if (static_cast<size_t>(num_calls_) <= report_.attempts.size()) {
    report_.attempts.back().end = now - start_time_;
    report_.attempts.back().reason = reason;
  }
  last_reason_ = reason;
  without_call_since_ = now;
  if (migrates && !stall_start_.has_value()) stall_start_ = now;
}

void RelayStats::OnConcluded(absl::Duration now) {
  if (without_call_since_.has_value()) report_.without_worker += now - *without_call_since_;
  without_call_since_.reset();
}

const RelayReport& RelayStats::Complete(const CallContext& context, int64_t estimated_prompt_tokens,
                                        const protocol::ReceivedResponses& received,
                                        absl::Duration now) {
  report_.tenant = context.tenant;
  if (report_.request_id.empty()) report_.request_id = context.request_id;
  report_.correlation_id = context.correlation_id;
  report_.completion_tokens = received.num_tokens() - tokens_before_;
  report_.replayed_tokens = std::min(report_.completion_tokens, context.tokens_had);
  if (!received.has_summary() && accepted_time_.has_value()) {
    report_.prompt_tokens = estimated_prompt_tokens;
  }
  report_.duration = now - start_time_;
  return report_;
}

std::string_view RelayStats::model() const {
  return requested_model_.empty() ? std::string_view(report_.model) : requested_model_;
}

}  // namespace continuo::gateway

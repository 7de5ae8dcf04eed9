// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_verdict.h"

#include <algorithm>

namespace continuo::gateway {

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kLost:
      break;
    case Verdict::kConnecting:
      return "connecting";
    case Verdict::kSilent:
      return "silent";
    case Verdict::kLoading:
      return "loading";
    case Verdict::kServing:
      return "serving";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kHung:
      return "hung";
    case Verdict::kDraining:
      return "draining";
  }
  return "lost";
}

WorkerState RoutingState(Verdict verdict) {
  switch (verdict) {
    case Verdict::kLost:
    case Verdict::kConnecting:
    case Verdict::kSilent:
      break;
    case Verdict::kLoading:
      return WorkerState::kLoading;
    case Verdict::kServing:
    case Verdict::kSlow:
      return WorkerState::kServing;
    case Verdict::kHung:
      return WorkerState::kHung;
    case Verdict::kDraining:
      return WorkerState::kDraining;
  }
  return WorkerState::kLost;
}

void WorkerVerdict::OnConnecting(absl::Duration now) {
  connection_ = Connection::kConnecting;
  has_report_ = false;
  health_ = Health::kServing;
  health_is_reported_ = false;
  last_report_time_ = now;
}

void WorkerVerdict::OnReport(absl::Duration now) {
  connection_ = Connection::kReporting;
  has_report_ = true;
  last_report_time_ = now;
}

void WorkerVerdict::OnHealth(bool not_serving, absl::Duration now) {
  if (!not_serving) {
    health_ = Health::kServing;
  } else if (health_ == Health::kServing) {
    health_ = Health::kNotServing;
    contradiction_time_ = now;
  }
}

void WorkerVerdict::OnReportedHealth(bool not_serving, absl::Duration now) {
  health_is_reported_ = true;
  OnHealth(not_serving, now);
}

void WorkerVerdict::OnEnd() {
  connection_ = Connection::kClosed;
  has_report_ = false;
}

std::optional<Verdict> WorkerVerdict::Check(absl::Duration now, absl::Duration awake_time,
                                            bool claims_serving, absl::Duration silence_limit) {
  if (connection_ == Connection::kClosed || connection_ == Connection::kSilent) return std::nullopt;
  // A watch that was opened and has never reported is silent as well.
  if (now - std::max(last_report_time_, awake_time) >
      std::max(options_.max_silence, silence_limit)) {
    connection_ = Connection::kSilent;
    return Verdict::kSilent;
  }
  if (!claims_serving || health_ != Health::kNotServing) return std::nullopt;
  if (now - std::max(contradiction_time_, awake_time) < options_.hung_confirm) return std::nullopt;
  if (!health_is_reported_ && last_report_time_ - contradiction_time_ < options_.hung_report) {
    return std::nullopt;
  }
  health_ = Health::kHung;
  return Verdict::kHung;
}

Verdict WorkerVerdict::Judge(const ModelEvidence& evidence) const {
  switch (connection_) {
    case Connection::kClosed:
      return Verdict::kLost;
    case Connection::kConnecting:
      return Verdict::kConnecting;
    case Connection::kSilent:
      return Verdict::kSilent;
    case Connection::kReporting:
      break;
  }
  if (!evidence.reported.has_value()) return Verdict::kLost;
  switch (*evidence.reported) {
    case v1::WORKER_STATE_SERVING:
      if (!evidence.listed) return Verdict::kDraining;
      if (health_ == Health::kHung) return Verdict::kHung;
      return evidence.slow ? Verdict::kSlow : Verdict::kServing;
    case v1::WORKER_STATE_DRAINING:
      return Verdict::kDraining;
    default:
      return Verdict::kLoading;
  }
}

}  // namespace continuo::gateway

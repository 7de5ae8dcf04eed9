// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/request_log.h"

#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

// The duration in seconds; -1 where the stream ended before it began.
double SecondsOrNone(absl::Duration duration) {
  return duration == absl::InfiniteDuration() ? -1 : absl::ToDoubleSeconds(duration);
}

}  // namespace

void LogRequest(const RelayReport& report, const absl::Status& status,
                const RequestLogFields& fields) {
  common::Log(status.ok() || absl::IsCancelled(status) ? common::LogSeverity::kInfo
                                                       : common::LogSeverity::kWarning,
              "request",
              {{"request_id", report.request_id},
               {"correlation_id", report.correlation_id},
               {"trace_id", fields.trace_id},
               {"tenant", report.tenant},
               {"key", fields.key},
               {"model", report.model},
               {"pool", fields.pool},
               {"worker", report.worker},
               {"fingerprint", report.fingerprint},
               {"code", protocol::StatusName(status.code())},
               {"reason", protocol::ReasonOf(status)},
               {"error", protocol::LoggedMessage(status)},
               {"migrations", report.migrations},
               {"prompt_tokens", report.prompt_tokens},
               {"completion_tokens", report.completion_tokens},
               {"without_worker", report.without_worker},
               {"queue", SecondsOrNone(report.queue)},
               {"prefill", SecondsOrNone(report.prefill)},
               {"time_to_first_token", SecondsOrNone(report.time_to_first_token)},
               {"stall", report.stall},
               {"longest_gap", report.longest_gap},
               {"duration", report.duration}});
}

void LogRejectedRequest(std::string_view model, const std::string& correlation_id,
                        const absl::Status& status, const std::string& trace_id) {
  common::Log(common::LogSeverity::kInfo, "request",
              {{"correlation_id", correlation_id},
               {"trace_id", trace_id},
               {"code", protocol::StatusName(status.code())},
               {"model", model.substr(0, 256)},  // Not validated yet.
               {"reason", protocol::ReasonOf(status)},
               {"error", protocol::LoggedMessage(status)}});
}

}  // namespace continuo::gateway

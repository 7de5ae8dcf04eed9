// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/relay/relay_report.h"

namespace continuo::gateway {

// The log line of a call has these fields beside its report.
struct RequestLogFields {
  std::string trace_id, key, pool;
};

// Writes the line "request" of a call that was admitted.
void LogRequest(const RelayReport& report, const absl::Status& status,
                const RequestLogFields& fields);

// The same of one that was rejected. The model may be any bytes.
void LogRejectedRequest(std::string_view model, const std::string& correlation_id,
                        const absl::Status& status, const std::string& trace_id);

}  // namespace continuo::gateway

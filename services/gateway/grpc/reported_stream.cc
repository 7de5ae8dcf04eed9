// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/reported_stream.h"

#include <utility>

namespace continuo::gateway {

ReportedStream::ReportedStream(const Listeners& listeners, RelayClient* client, Call call,
                               common::CallTrace trace, KeyLimiter::Claim claim)
    : listeners_(listeners),
      client_(client),
      call_(std::move(call)),
      trace_(std::move(trace)),
      claim_(std::move(claim)) {}

void ReportedStream::Finish(const absl::Status& status, const RelayReport& report) {
  Report(status, report);
  client_->Finish(status, report);
  delete this;
}

void ReportedStream::WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                               const RelayReport& report) {
  Report(status, report);
  client_->WriteLast(response, status, report);
  delete this;
}

void ReportedStream::OnGivenUp(const absl::Status& status, const RelayReport& report) {
  Report(status, report);
}

void ReportedStream::Report(const absl::Status& status, const RelayReport& report) {
  if (std::exchange(reported_, true)) return;
  claim_.Settle(report.prompt_tokens + report.completion_tokens);
  UsageRecord record = RecordOf(report);
  record.call = call_.id;
  record.is_again = call_.is_again;
  if (claim_.key() != nullptr) record.key = claim_.key()->id();
  listeners_.reports->OnEnd(report, record, status, call_.operation, &trace_);
  listeners_.recent_keys->OnAnswered(report.tenant,
                                     call_.identity.empty() ? report.request_id : call_.identity,
                                     report.fingerprint);
  listeners_.open->Leave(relay_);
}

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "services/common/telemetry/call_trace.h"
#include "services/gateway/grpc/live_streams.h"
#include "services/gateway/identity/recent_keys.h"
#include "services/gateway/relay/relay_client.h"
#include "services/gateway/reports/call_reports.h"
#include "services/gateway/requests/key_limiter.h"

namespace continuo::gateway {

// Stands between a relay and its client, so that all who are told of a call's end have been told
// before the client is. Owns itself until then, if set_relay was called. Used from the relay's
// callbacks, which come one at a time.
class ReportedStream : public RelayClient {
 public:
  // All of them outlive the stream.
  struct Listeners {
    const CallReports* reports = nullptr;
    LiveStreams* open = nullptr;
    RecentKeys* recent_keys = nullptr;
  };
  // What the relay's report does not have.
  struct Call {
    std::string id;              // UsageRecord::call
    bool is_again = false;       // UsageRecord::is_again
    std::string identity;        // CallIdentity::request_id, where the call has one
    std::string_view operation;  // of the span; lives for ever
  };
  ReportedStream(const Listeners& listeners, RelayClient* client, Call call,
                 common::CallTrace trace, KeyLimiter::Claim claim);

  void set_relay(const StreamRelay* relay) { relay_ = relay; }
  common::CallTrace* trace() { return &trace_; }

  void OnSent() override { client_->OnSent(); }
  void Write(const v1::GenerateResponse& response) override { client_->Write(response); }
  void Finish(const absl::Status& status, const RelayReport& report) override;
  void WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                 const RelayReport& report) override;
  void OnGivenUp(const absl::Status& status, const RelayReport& report) override;

 private:
  // Once.
  void Report(const absl::Status& status, const RelayReport& report);

  const Listeners listeners_;
  RelayClient* const client_;
  const Call call_;
  common::CallTrace trace_;
  KeyLimiter::Claim claim_;
  const StreamRelay* relay_ = nullptr;
  bool reported_ = false;
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/relay_report.h"

namespace continuo::gateway {

// The client's side of a relay. The relay makes one call at a time, waits for
// StreamRelay::OnWritten after each Write, and makes no call after Finish.
class RelayClient {
 public:
  virtual ~RelayClient() = default;
  // Called each time that a worker gets the request; it may queue it or reject it yet.
  virtual void OnSent() {}
  // The client answers with StreamRelay::OnWritten. It must not keep the reference.
  virtual void Write(const v1::GenerateResponse& response) = 0;
  virtual void Finish(const absl::Status& status, const RelayReport& report) = 0;
  // Gives the last response and the end at once, in place of Write and Finish. The relay does not
  // wait for OnWritten.
  virtual void WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                         const RelayReport& report) {
    Write(response);
    Finish(status, report);
  }
  // Called at shutdown when the client stops reading: the status and report that Finish would get.
  // Finish may still be called later.
  virtual void OnGivenUp(const absl::Status& /*status*/, const RelayReport& /*report*/) {}
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every way into the gateway shares: a call of Generate, whatever protocol brought it. No
// gRPC.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// What came with a request.
struct ClientCall {
  // The client's value of a metadata key or header, in lower case; "" where it sent none. Used only
  // during the call of Open.
  std::function<std::string(const char* key)> metadata;
  absl::Time deadline = absl::InfiniteFuture();
  int64_t num_bytes = 0;  // of memory that the request takes, about
};

// Thread-safe.
class GenerateFront {
 public:
  virtual ~GenerateFront() = default;

  // The tenant, or why the call is refused: for what needs no Open, and before a body is read.
  virtual absl::StatusOr<std::string> Authenticate(const ClientCall& call) const = 0;

  // Checks, authenticates and admits the request; the caller then calls Start of the relay, always,
  // and keeps it until Finish. `client` lives until its Finish. A refused request has been logged
  // and counted.
  virtual absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                            v1::GenerateRequest request,
                                                            RelayClient* client) = 0;
  // Logs and counts a request that was refused before Open.
  virtual void Refused(const std::string& model, const absl::Status& status) = 0;

  virtual std::string MakeRequestId() = 0;
};

}  // namespace continuo::gateway

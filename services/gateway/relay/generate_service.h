// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/identity/idempotency.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// The context of a client's call, whatever protocol brought it.
struct ClientCall {
  // The client's value of a metadata key or header, given in lower case; "" if it sent none. Used
  // only during the call of Open.
  std::function<std::string(const char* key)> metadata;
  absl::Time deadline = absl::InfiniteFuture();
  int64_t num_bytes = 0;  // of memory that the request takes, roughly
  // The client's own name for its request, printable and bounded. Only the log has it; several
  // requests may share one.
  std::string correlation_id;
  // Where another call may ask for the same generation; see Identify. The request has its id and
  // seed.
  std::optional<CallIdentity> identity;
  // Tokens of the answer that the client has had from an earlier call. This one generates them
  // again to find the place, and does not deliver them.
  int64_t tokens_had = 0;
  // Of Embed: a worker with another fingerprint will not do. Empty: any will.
  std::string fingerprint = {};
};

// The method Generate without a protocol: all ways into the gateway share it. No gRPC.
// Thread-safe.
class GenerateService {
 public:
  virtual ~GenerateService() = default;

  // The tenant, or the error with which the call is rejected. For calls that need no Open, and to
  // reject strangers before a body is read.
  virtual absl::StatusOr<std::string> Authenticate(const ClientCall& call) const = 0;

  // The identity of the calls of this tenant with this idempotency key. INVALID_ARGUMENT if the key
  // is a bad one, or an error of Authenticate.
  virtual absl::StatusOr<CallIdentity> Identify(const ClientCall& call,
                                                std::string_view key) const = 0;

  // Checks, authenticates and admits the request. On success the caller must call Start of the
  // relay and keep it until Finish; `client` lives until its Finish. A rejected request has been
  // logged and counted.
  virtual absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                            v1::GenerateRequest request,
                                                            RelayClient* client) = 0;
  // Logs and counts a request that was rejected before Open.
  virtual void OnRejected(const std::string& model, const std::string& correlation_id,
                          const absl::Status& status) = 0;

  virtual std::string MakeRequestId() = 0;
};

}  // namespace continuo::gateway

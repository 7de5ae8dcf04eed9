// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

class StreamRelay;

// One call to a worker. Each StartRead is answered by one StreamRelay::OnResponse or by
// OnWorkerEnd, after which no event follows. The relay ignores events of a call that it abandoned.
class WorkerCall {
 public:
  virtual ~WorkerCall() = default;
  virtual void StartRead() = 0;
  // Cancels the call.
  virtual void Abandon() = 0;
};

// The metadata of a call to a worker, sent beside the request.
struct CallContext {
  std::string request_id, tenant;
  // Identifies the client's call among all calls, so that a worker recognises a migration of the
  // very call that it holds. Empty for calls that never migrate.
  std::string call_id;
  std::string correlation_id;  // ClientCall::correlation_id; not sent
  // The time that the chat template is to see, and the digest of the request that this id stands
  // for; not sent where they are infinite and empty, so that the worker may choose and need not
  // check.
  absl::Time reference_time = absl::InfinitePast();
  std::string body;
  // Workers whose fingerprint begins so are preferred while nothing was received; empty: all are
  // alike.
  std::string preferred_fingerprint;
  // Tokens of the answer that the client has had, and that are generated again; not sent.
  int64_t tokens_had = 0;
  // traceparent, tracestate and x-session-id, as the client sent them.
  std::vector<std::pair<std::string, std::string>> forwarded;
  absl::Time deadline = absl::InfiniteFuture();
};

// Opens calls to workers. Shared by all relays, thread-safe.
class WorkerTransport {
 public:
  virtual ~WorkerTransport() = default;
  // Begins a call. No event reaches the relay before StartRead; each event of the call carries
  // `attempt`. The transport must not keep a reference to the request.
  virtual std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                            const Lease& lease, const v1::GenerateRequest& request,
                                            const CallContext& context, bool is_migration) = 0;
};

}  // namespace continuo::gateway

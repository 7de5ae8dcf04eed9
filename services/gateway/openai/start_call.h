// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/routes/routes.h"
#include "services/gateway/openai/stream/call_start.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// A call is started with these. They outlive it.
struct StartDependencies {
  GenerateService* service = nullptr;
  const FleetSecret* secret = nullptr;
  absl::Time now;
  bool event_ids = true;  // where neither body nor header says it
  // The models that the caller may use.
  std::function<std::vector<v1::Model>(const ClientCall&)> models;
};

// Reads a call, and completes its start: what its idempotency key stands for, and where a stream
// goes on. `start` has the id of a call that has neither. The errors are those of
// GenerateService::Identify, ReadCall and StartStream.
absl::StatusOr<HttpCall> ReadAndStart(const StartDependencies& dependencies, RouteId route,
                                      const HttpRequest& request, const ClientCall& call,
                                      CallStart* start);

}  // namespace continuo::gateway::openai

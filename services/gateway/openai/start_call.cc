// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/start_call.h"

#include <optional>
#include <string>
#include <string_view>

#include "services/base/status_macros.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/kserve_api.h"

namespace continuo::gateway::openai {

absl::StatusOr<HttpCall> ReadAndStart(const StartDependencies& dependencies, RouteId route,
                                      const HttpRequest& request, const ClientCall& call,
                                      CallStart* start) {
  const auto key = request.find(kIdempotencyKey);
  if (key != request.end()) {
    const std::string_view value(key->value().data(), key->value().size());
    ASSIGN_OR_RETURN(start->identity, dependencies.service->Identify(call, value));
    start->identity.body = DigestOfBody(request);
    start->key = std::string(value);
  }
  const auto own_name = [&](std::string_view name) {
    return OwnName(dependencies.models(call), name);
  };
  ASSIGN_OR_RETURN(HttpCall parsed, ReadCall(route, request, own_name));
  if (!parsed.stream) return parsed;
  ASSIGN_OR_RETURN(const std::optional<bool> header, EventIdsOf(request));
  start->has_ids = parsed.event_ids.value_or(header.value_or(dependencies.event_ids));
  ASSIGN_OR_RETURN(const std::string tenant, dependencies.service->Authenticate(call));
  const std::string body = start->key.has_value() ? start->identity.body : DigestOfBody(request);
  const auto last = request["last-event-id"];
  RETURN_IF_ERROR(StartStream(*dependencies.secret, tenant, body, {last.data(), last.size()},
                              dependencies.now, start));
  return parsed;
}

}  // namespace continuo::gateway::openai

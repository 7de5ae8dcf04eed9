// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a request's head says, as gRPC metadata would. Pure functions.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// Headers are read as metadata of the same names, `grpc-timeout` as the deadline; one that does not
// parse counts as none. The request outlives what is returned; num_bytes is to be set by who knows
// how many generations it becomes.
ClientCall CallOf(const HttpRequest& request, absl::Time now);

// x-request-id, else a new one. INVALID_ARGUMENT where it cannot be an id.
absl::StatusOr<std::string> RequestIdOf(const HttpRequest& request, GenerateService& front);

// Part of a path with %2F and the like decoded; what is no such code stays.
std::string DecodePath(std::string_view path);

// "5S", "100m": up to 8 digits and one of HMSmun. Infinite where it is something else.
absl::Duration ParseGrpcTimeout(std::string_view text);

}  // namespace continuo::gateway::openai

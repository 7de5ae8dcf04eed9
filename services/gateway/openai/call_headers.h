// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the headers of a request as if they were gRPC metadata. Pure functions.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// Headers are metadata of the same names; `grpc-timeout` is the deadline, and one that does not
// parse counts as none. The request outlives the result. num_bytes is left to the caller, who knows
// how many generations the request becomes.
ClientCall CallOf(const HttpRequest& request, absl::Time now);

// x-request-id, else a new id. INVALID_ARGUMENT if the header cannot be an id.
absl::StatusOr<std::string> RequestIdOf(const HttpRequest& request, GenerateService& service);

// Decodes %2F and the like in a part of a path; anything that is no such code stays.
std::string DecodePath(std::string_view path);

// Parses "5S" or "100m": up to 8 digits and one of HMSmun. Infinite for anything else.
absl::Duration ParseGrpcTimeout(std::string_view text);

}  // namespace continuo::gateway::openai

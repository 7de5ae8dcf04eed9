// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the headers of a request as if they were gRPC metadata. Pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway::openai {

// Headers are metadata of the same names, but for two: a key may also stand in `x-api-key`, and
// `x-request-id` is correlation_id. `grpc-timeout` is the deadline, and one that does not parse
// counts as none. The request outlives the result. num_bytes is left to the caller, who knows how
// many generations the request becomes.
ClientCall CallOf(const HttpRequest& request, absl::Time now);

// The header that tells how much of the body of a request for inference is JSON.
inline constexpr char kInferenceHeaderLength[] = "inference-header-content-length";

// The digest of what the request asks for: its path, its body, and how that is divided.
std::string DigestOfBody(const HttpRequest& request);

// What `x-event-ids` says of the events of a stream: true, false, or nothing. INVALID_ARGUMENT for
// other values.
absl::StatusOr<std::optional<bool>> EventIdsOf(const HttpRequest& request);

// The form in which a client's own id is logged: printable, other bytes as \xNN, cut to 128 bytes
// of the id.
std::string LoggedId(std::string_view id);

// Parses "5S" or "100m": up to 8 digits and one of HMSmun. Infinite for anything else.
absl::Duration ParseGrpcTimeout(std::string_view text);

}  // namespace continuo::gateway::openai

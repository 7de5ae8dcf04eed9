// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes with an error beside code and message: why (google.rpc.ErrorInfo), when to try again
// (RetryInfo), which field (BadRequest). They travel inside the program as absl::Status payloads
// under their type URLs, and between programs as the details of the gRPC status (grpc_status.h).
// Nothing here knows gRPC. All functions are thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace continuo::protocol {

// Domain of every reason.
inline constexpr std::string_view kErrorDomain = "continuo.v1";

// Worker: it ends its streams; everything generated was flushed before.
inline constexpr std::string_view kReasonDraining = "DRAINING";
// Gateway: it ends; the client goes on elsewhere with a continuation.
inline constexpr std::string_view kReasonContinue = "CONTINUE";
inline constexpr std::string_view kReasonNoWorker = "NO_WORKER";
inline constexpr std::string_view kReasonWorkerLost = "WORKER_LOST";
inline constexpr std::string_view kReasonOverloaded = "OVERLOADED";
inline constexpr std::string_view kReasonRateLimited = "RATE_LIMITED";
inline constexpr std::string_view kReasonContextTooLong = "CONTEXT_TOO_LONG";
inline constexpr std::string_view kReasonModelChanged = "MODEL_CHANGED";
inline constexpr std::string_view kReasonPoison = "POISON";
inline constexpr std::string_view kReasonAborted = "ABORTED";
// Worker: the client does not read its stream; when it does, it goes on with a continuation.
inline constexpr std::string_view kReasonSlowReader = "SLOW_READER";

// `status` with its reason set. An OK status stays as it is.
absl::Status WithReason(absl::Status status, std::string_view reason);

// `status` with a hint when the client may try again; negative delays count as 0.
absl::Status WithRetryInfo(absl::Status status, absl::Duration delay);

// INVALID_ARGUMENT "field: message" that also names the field (dotted path, as in the proto:
// "sampling.temperature") in a BadRequest.
absl::Status FieldError(std::string_view field, std::string_view message);

// "" where the status has none, or one of another domain.
std::string ReasonOf(const absl::Status& status);

// Where code and message are all that travels: the message with the reason of `status`, if it has
// one, before it, "continuo.v1/REASON: message". And back: the reason set, the message as it was.
std::string MessageWithReason(const absl::Status& status);
absl::Status ReasonFromMessage(absl::Status status);

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// The first field that the status names, else "".
std::string FieldOf(const absl::Status& status);

}  // namespace continuo::protocol

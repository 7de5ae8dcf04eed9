// SPDX-License-Identifier: Apache-2.0
#pragma once

// The details of an error beside its code and message: the reason (google.rpc.ErrorInfo), the time
// to try again (RetryInfo), the field (BadRequest). They travel inside the program as absl::Status
// payloads under their type URLs, and between programs as the details of the gRPC status
// (common/grpc/grpc_status.h). All functions are thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace continuo::protocol {

// The domain of every reason.
inline constexpr std::string_view kErrorDomain = "continuo.v1";

// From a worker that ends its streams. Everything generated was flushed before.
inline constexpr std::string_view kReasonDraining = "DRAINING";
// From a gateway that ends. The client goes on elsewhere with a continuation.
inline constexpr std::string_view kReasonContinue = "CONTINUE";
inline constexpr std::string_view kReasonNoWorker = "NO_WORKER";
inline constexpr std::string_view kReasonWorkerLost = "WORKER_LOST";
inline constexpr std::string_view kReasonOverloaded = "OVERLOADED";
inline constexpr std::string_view kReasonRateLimited = "RATE_LIMITED";
inline constexpr std::string_view kReasonContextTooLong = "CONTEXT_TOO_LONG";
inline constexpr std::string_view kReasonModelChanged = "MODEL_CHANGED";
inline constexpr std::string_view kReasonPoison = "POISON";
inline constexpr std::string_view kReasonAborted = "ABORTED";
// From a worker whose client does not read its stream. When the client reads again, it goes on with
// a continuation.
inline constexpr std::string_view kReasonSlowReader = "SLOW_READER";

// From a server of the fleet, to a peer that it does not know: the token is missing or wrong, or
// the certificate has another name.
inline constexpr std::string_view kReasonPeerToken = "PEER_TOKEN";
inline constexpr std::string_view kReasonPeerName = "PEER_NAME";
// The client's key is not for this model.
inline constexpr std::string_view kReasonModelNotAllowed = "MODEL_NOT_ALLOWED";
// The client's idempotency key stands for another request.
inline constexpr std::string_view kReasonKeyReused = "IDEMPOTENCY_KEY_REUSED";
// The id of an event, behind which a stream is to go on, is none that this client was sent, or is
// of another request.
inline constexpr std::string_view kReasonInvalidCursor = "INVALID_CURSOR";
inline constexpr std::string_view kReasonOtherRequest = "CURSOR_OF_ANOTHER_REQUEST";

// Returns `status` with its reason set. An OK status stays as it is.
absl::Status WithReason(absl::Status status, std::string_view reason);

// Returns `status` with the delay after which the client may try again, clamped to 0 and
// kMaxRetryDelay (limits.h).
absl::Status WithRetryInfo(absl::Status status, absl::Duration delay);

// RESOURCE_EXHAUSTED, reason OVERLOADED, to be tried again in a second.
absl::Status OverloadedError(std::string_view message);

// ALREADY_EXISTS, reason IDEMPOTENCY_KEY_REUSED.
absl::Status KeyReusedError();

// INVALID_ARGUMENT "field: message" that also names the field (dotted path, as in the proto:
// "sampling.temperature") in a BadRequest.
absl::Status FieldError(std::string_view field, std::string_view message);

// The reason of the status; "" if it has none, or one of another domain.
std::string ReasonOf(const absl::Status& status);

// Carry the reason in the message where no details travel: MessageWithReason puts it before the
// message, "continuo.v1/REASON: message", and ReasonFromMessage undoes that.
std::string MessageWithReason(const absl::Status& status);
absl::Status ReasonFromMessage(absl::Status status);

// The delay of WithRetryInfo, if there is one; never negative.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// The first field that the status names; "" if there is none.
std::string FieldOf(const absl::Status& status);

// Returns the message as it may be logged. Errors of constraints and of the grammars of tools quote
// the client, so only their field is told.
std::string LoggedMessage(const absl::Status& status);

}  // namespace continuo::protocol

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of a request's contract that needs no model. Gateways and workers check it with this
// code; a worker adds what depends on its model (worker/server/session/validate.h). Errors are
// INVALID_ARGUMENT and name the field and the limit (limits.h). All functions are thread-safe.

#include <google/protobuf/message.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::protocol {

// Checks everything but unknown fields, and of a continuation only what bounds memory.
absl::Status ValidateGenerate(const v1::GenerateRequest& request);

// Checks everything but unknown fields.
absl::Status ValidateEmbed(const v1::EmbedRequest& request);
// Returns whether an input is a pair.
bool HasPairs(const v1::EmbedRequest& request);

// Checks the conversation that is the field `path` of some request.
absl::Status ValidateConversation(std::string_view path, const v1::Conversation& conversation);

// An id has 1 to kMaxIdBytes characters of printable ASCII. The error names `field`.
absl::Status ValidateId(std::string_view field, std::string_view id);

// True for a header value that may be sent on: 1 to kMaxForwardedHeaderBytes characters of
// printable ASCII. gRPC accepts other bytes from a client, but not for sending.
bool IsForwardable(std::string_view value);

// Names the first field, anywhere in the message but in a continuation, that this program does not
// know.
absl::Status RejectUnknownFields(const google::protobuf::Message& message);

// The value of `field`: a valid Timestamp, and a valid Duration from 0 to `max`.
absl::StatusOr<absl::Time> ReadTimestamp(std::string_view field,
                                         const google::protobuf::Timestamp& time);
absl::StatusOr<absl::Duration> ReadDuration(std::string_view field,
                                            const google::protobuf::Duration& duration,
                                            absl::Duration max = absl::InfiniteDuration());

}  // namespace continuo::protocol

// SPDX-License-Identifier: Apache-2.0
#pragma once

// google.protobuf.Timestamp and Duration to and from Abseil's times. All functions are thread-safe.

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace continuo::protocol {

// Fractions of a nanosecond are cut off.
google::protobuf::Timestamp ToProto(absl::Time time);
google::protobuf::Duration ToProto(absl::Duration duration);

// Take any value, also one outside the range that the types allow. ReadTimestamp and ReadDuration
// of validate_request.h reject such a value.
absl::Time FromProto(const google::protobuf::Timestamp& time);
absl::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace continuo::protocol

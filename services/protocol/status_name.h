// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace continuo::protocol {

// The names of the status codes as gRPC spells them, by the number of the code. Metrics, logs and
// spans use these.
inline constexpr std::array<std::string_view, 17> kStatusNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// "UNKNOWN" for a number that is no code.
constexpr std::string_view StatusName(absl::StatusCode code) {
  const auto number = static_cast<size_t>(code);
  return number < kStatusNames.size() ? kStatusNames[number] : "UNKNOWN";
}

}  // namespace continuo::protocol

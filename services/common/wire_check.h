// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests as bytes, before they are parsed or where they cannot be.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace continuo {

// Why bytes that are no message of this type are none: the field whose text is not UTF-8, or that
// the bytes themselves are malformed. Always INVALID_ARGUMENT. Protobuf only says that it failed.
absl::Status ExplainParseFailure(std::string_view bytes, const google::protobuf::Descriptor& type);

// A request's values are its messages, its texts and what is not known here. Each takes up to so
// much memory besides its content, for as little as two bytes of the request.
inline constexpr int64_t kBytesPerValue = 160;
inline constexpr int64_t kMaxValues = 1 << 20;

// How many values a parser would make of the bytes, at least; counted no further than
// kMaxValues + 1. Takes no memory, so that it can come before the parser.
int64_t CountValues(google::protobuf::io::ZeroCopyInputStream* bytes,
                    const google::protobuf::Descriptor& type);
// INVALID_ARGUMENT where there are more than kMaxValues.
absl::Status CheckNumValues(int64_t num_values);

}  // namespace continuo

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks of requests as bytes, before they are parsed or when they cannot be. All functions are
// thread-safe.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace continuo::protocol {

// Explains why `bytes` do not parse as a message of this type: names the field whose text is not
// UTF-8, or says that the bytes are malformed. Always INVALID_ARGUMENT. Protobuf itself only says
// that it failed.
absl::Status ExplainParseFailure(std::string_view bytes, const google::protobuf::Descriptor& type);

// The parts of a request that take more memory when they are parsed than they have bytes.
struct WireCounts {
  // Messages, texts and unknown fields: each takes up to kBytesPerValue besides its content, for as
  // little as two bytes of the request.
  int64_t values = 0;
  // Numbers in lists: each takes up to kBytesPerNumber, for as little as one byte. A list grows by
  // doubling, and its numbers may be kept in another form as well.
  int64_t numbers = 0;
};
inline constexpr int64_t kBytesPerValue = 160;
inline constexpr int64_t kBytesPerNumber = 16;

// Counts at least what a parser would make of the bytes, but no further than kMaxValues + 1 values
// (limits.h). Takes no memory, so that it can come before the parser.
WireCounts CountOnWire(google::protobuf::io::ZeroCopyInputStream* bytes,
                       const google::protobuf::Descriptor& type);
// Estimates the memory, in bytes, of a message that has `num_bytes` on the wire.
int64_t MemoryOf(int64_t num_bytes, const WireCounts& counts);
// INVALID_ARGUMENT if there are more than kMaxValues.
absl::Status CheckNumValues(int64_t num_values);

}  // namespace continuo::protocol

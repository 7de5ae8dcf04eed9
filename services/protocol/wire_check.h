// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests as bytes, before they are parsed or where they cannot be.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace continuo::protocol {

// Why bytes that are no message of this type are none: the field whose text is not UTF-8, or that
// the bytes themselves are malformed. Always INVALID_ARGUMENT. Protobuf only says that it failed.
absl::Status ExplainParseFailure(std::string_view bytes, const google::protobuf::Descriptor& type);

// What a parser makes of a request that takes more memory than the bytes do.
struct WireCounts {
  // Messages, texts and what is not known here: each takes up to kBytesPerValue besides its
  // content, for as little as two bytes of the request.
  int64_t values = 0;
  // Numbers in lists: each up to kBytesPerNumber, for as little as one byte. The list that grew by
  // doubling, and once more where its numbers are kept in another form.
  int64_t numbers = 0;
};
inline constexpr int64_t kBytesPerValue = 160;
inline constexpr int64_t kBytesPerNumber = 16;
inline constexpr int64_t kMaxValues = 1 << 20;

// At least what a parser would make of the bytes; counted no further than to kMaxValues + 1 values.
// Takes no memory, so that it can come before the parser.
WireCounts CountOnWire(google::protobuf::io::ZeroCopyInputStream* bytes,
                       const google::protobuf::Descriptor& type);
// About how much memory so many bytes and what a parser makes of them take.
int64_t MemoryOf(int64_t num_bytes, const WireCounts& counts);
// INVALID_ARGUMENT where there are more than kMaxValues.
absl::Status CheckNumValues(int64_t num_values);

}  // namespace continuo::protocol

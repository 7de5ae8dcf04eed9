// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/random/bit_gen_ref.h"

namespace continuo::common {

// The place of a span in its trace, as in the header `traceparent` of W3C Trace Context.
struct TraceContext {
  std::array<uint8_t, 16> trace_id = {};  // Never all 0.
  std::array<uint8_t, 8> span_id = {};    // Never all 0.
  uint8_t flags = 0;

  bool sampled() const { return (flags & 1) != 0; }
  // The trace's id in hexadecimal.
  std::string TraceId() const;
  // Formats the header: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
  std::string ToHeader() const;
};

// Parses a header; nullopt where it is not valid. Of versions after 00 the fields of 00 are read.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// Makes a new span below `parent`, or the first span of a new, sampled trace.
TraceContext MakeSpanContext(const std::optional<TraceContext>& parent, absl::BitGenRef random);

}  // namespace continuo::common

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/random/bit_gen_ref.h"

namespace continuo::common {

// A span's place in its trace, as the header `traceparent` of W3C Trace Context says it.
struct TraceContext {
  std::array<uint8_t, 16> trace_id = {};  // never all 0
  std::array<uint8_t, 8> span_id = {};    // never all 0
  uint8_t flags = 0;

  bool sampled() const { return (flags & 1) != 0; }
  // "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
  std::string ToHeader() const;
};

// nullopt where it is no valid traceparent. Later versions than 00 are read as far as 00 goes.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// A new span below `parent`, or the first of a new, sampled trace.
TraceContext MakeSpanContext(const std::optional<TraceContext>& parent, absl::BitGenRef random);

}  // namespace continuo::common

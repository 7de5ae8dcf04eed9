// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace continuo::text {

// A piece of an answer. The bytes of two events of one kind that follow each other are one text:
// AppendEvent joins them.
struct ResponseEvent {
  enum class Kind : uint8_t {
    kText,
    kReasoning,
    kCallBegin,  // `bytes` is the function's name
    kArguments,  // of the call that has begun: a JSON object, in pieces
    kCallEnd,
  };
  Kind kind = Kind::kText;
  std::string bytes;
  // kCallEnd: the arguments are a whole JSON object.
  bool whole = true;

  bool operator==(const ResponseEvent&) const = default;
};

using ResponseEvents = std::vector<ResponseEvent>;

inline void AppendEvent(ResponseEvent::Kind kind, std::string_view bytes, ResponseEvents* events) {
  using Kind = ResponseEvent::Kind;
  if (kind == Kind::kText || kind == Kind::kReasoning || kind == Kind::kArguments) {
    if (bytes.empty()) return;
    if (!events->empty() && events->back().kind == kind) {
      events->back().bytes += bytes;
      return;
    }
  }
  events->push_back({.kind = kind, .bytes = std::string(bytes)});
}

// The call that a reader has begun to tell. Every reader has one.
struct OpenCall {
  // Bytes of a name, and of a text that has to be whole before it can be passed on.
  static constexpr size_t kMaxName = 1024;
  static constexpr size_t kMaxHeld = 64 << 10;

  bool begun = false;
  bool whole = false;  // its arguments are complete

  void Begin(std::string_view name, ResponseEvents* events) {
    begun = true;
    whole = false;
    AppendEvent(ResponseEvent::Kind::kCallBegin, name, events);
  }
  void Arguments(std::string_view bytes, ResponseEvents* events) {
    AppendEvent(ResponseEvent::Kind::kArguments, bytes, events);
  }
  void End(ResponseEvents* events) {
    events->push_back({.kind = ResponseEvent::Kind::kCallEnd, .whole = whole});
    begun = whole = false;
  }
};

}  // namespace continuo::text

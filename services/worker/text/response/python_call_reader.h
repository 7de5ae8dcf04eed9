// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/worker/text/response/response_event.h"
#include "services/worker/text/response/response_template.h"

namespace continuo::text {

// Turns one literal of Python's into JSON, a byte at a time: strings, numbers, True, False, None,
// lists, tuples and dicts whose keys are strings. Copyable.
class PythonLiteral {
 public:
  static constexpr size_t kMaxDepth = 64;

  enum class Step : uint8_t { kInside, kEnds, kEndedBefore, kBad };
  // Appends the JSON that the byte decides.
  Step Push(char c, std::string* json);
  bool in_string() const {
    return state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstItem,
    kItem,
    kFirstKey,
    kKey,
    kColon,
    kAfter,
    kWord,
    kString,
    kEscape,
    kHex,
  };
  Step Begin(char c, std::string* json);
  Step Close(char c, std::string* json);
  Step Ended();
  Step Escape(char c, std::string* json);
  bool EndWord(std::string* json);

  std::string open_;  // brackets
  State state_ = State::kValue;
  char quote_ = 0;
  bool string_is_key_ = false;
  uint8_t num_hex_ = 0;
  std::string word_;  // a number or a name, or the digits of an escape
};

// Reads calls that are Python's, with keyword arguments: `f(a=1)`, in a list or not, or what
// follows "f(" where the name is known. Copyable.
class PythonCallReader {
 public:
  // `name` is the call's whose bracket was read before; empty where none was.
  explicit PythonCallReader(std::string_view name);

  // False: what was read does not go on with this byte, which is not taken.
  bool Push(char c, ResponseEvents* events);
  bool PushSpecial(std::string_view, ResponseEvents*) { return true; }
  bool at_rest() const {
    return phase_ == Phase::kDone || (phase_ == Phase::kAfterCall && !is_list_);
  }
  bool End(bool closed, ResponseEvents* events);

 private:
  enum class Phase {
    kStart,
    kName,
    kArguments,
    kKeyword,
    kEquals,
    kValue,
    kAfterValue,
    kAfterCall,
    kDone
  };
  void BeginCall(ResponseEvents* events);
  void EndCall(ResponseEvents* events);

  Phase phase_ = Phase::kStart;
  OpenCall call_;
  std::string name_;  // of the call or of an argument
  bool is_list_ = false;
  int num_arguments_ = 0;
  bool begin_ = false;  // the call is to begin with the next byte
  PythonLiteral literal_;
};

}  // namespace continuo::text

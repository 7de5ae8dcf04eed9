// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/python_call_reader.h"

#include "absl/strings/ascii.h"
#include "services/worker/text/response/json_scanner.h"

namespace continuo::text {
namespace {

bool BeginsName(char c) {
  return c == '_' || absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsNameByte(char c) {
  return BeginsName(c) || c == '.' || c == '-' ||
         absl::ascii_isdigit(static_cast<unsigned char>(c));
}

bool IsJsonNumber(std::string_view text) {
  JsonScanner scanner;
  for (const char c : text) {
    if (scanner.Push(c) != JsonScanner::Step::kInside) return false;
  }
  return scanner.Push(' ') == JsonScanner::Step::kEndedBefore;
}

}  // namespace

PythonLiteral::Step PythonLiteral::Ended() {
  state_ = State::kAfter;
  return open_.empty() ? Step::kEnds : Step::kInside;
}

PythonLiteral::Step PythonLiteral::Begin(char c, std::string* json) {
  if (c == '[' || c == '(' || c == '{') {
    if (open_.size() >= kMaxDepth) return Step::kBad;
    open_ += c;
    *json += c == '{' ? '{' : '[';
    state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
    return Step::kInside;
  }
  if (c == '"' || c == '\'') {
    quote_ = c;
    string_is_key_ = false;
    state_ = State::kString;
    *json += '"';
    return Step::kInside;
  }
  if (!IsNameByte(c)) return Step::kBad;
  word_ = c;
  state_ = State::kWord;
  return Step::kInside;
}

PythonLiteral::Step PythonLiteral::Close(char c, std::string* json) {
  const char open = c == ']' ? '[' : c == ')' ? '(' : '{';
  if (open_.empty() || open_.back() != open) return Step::kBad;
  open_.pop_back();
  *json += c == '}' ? '}' : ']';
  return Ended();
}

bool PythonLiteral::EndWord(std::string* json) {
  if (word_ == "True" || word_ == "true") {
    *json += "true";
  } else if (word_ == "False" || word_ == "false") {
    *json += "false";
  } else if (word_ == "None" || word_ == "null") {
    *json += "null";
  } else if (IsJsonNumber(word_)) {
    *json += word_;
  } else {
    return false;
  }
  return true;
}

PythonLiteral::Step PythonLiteral::Escape(char c, std::string* json) {
  state_ = State::kString;
  switch (c) {
    case 'n':
      *json += "\\n";
      break;
    case 't':
      *json += "\\t";
      break;
    case 'r':
      *json += "\\r";
      break;
    case 'b':
      *json += "\\b";
      break;
    case 'f':
      *json += "\\f";
      break;
    case '\n':
      break;
    case '\\':
    case '\'':
    case '"':
      AppendJsonEscaped(c, json);
      break;
    case 'x':
    case 'u':
      state_ = State::kHex;
      num_hex_ = c == 'x' ? 2 : 4;
      word_.clear();
      break;
    default:  // no escape of Python's: a backslash
      *json += "\\\\";
      AppendJsonEscaped(c, json);
  }
  return Step::kInside;
}

PythonLiteral::Step PythonLiteral::Push(char c, std::string* json) {
  switch (state_) {
    case State::kString:
      if (c == '\\') {
        state_ = State::kEscape;
      } else if (c != quote_) {
        AppendJsonEscaped(c, json);
      } else {
        *json += '"';
        if (!string_is_key_) return Ended();
        state_ = State::kColon;
      }
      return Step::kInside;
    case State::kEscape:
      return Escape(c, json);
    case State::kHex:
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return Step::kBad;
      word_ += c;
      if (word_.size() < num_hex_) return Step::kInside;
      *json += num_hex_ == 2 ? "\\u00" : "\\u";
      *json += word_;
      state_ = State::kString;
      return Step::kInside;
    case State::kWord:
      if (IsNameByte(c) || c == '+') {
        word_ += c;
        return word_.size() <= OpenCall::kMaxName ? Step::kInside : Step::kBad;
      }
      if (!EndWord(json)) return Step::kBad;
      return Ended() == Step::kEnds ? Step::kEndedBefore : Push(c, json);
    default:
      break;
  }
  if (JsonScanner::IsSpace(c)) return Step::kInside;
  switch (state_) {
    case State::kFirstItem:
    case State::kItem:
      if (c == ']' || c == ')') return Close(c, json);
      if (state_ == State::kItem) *json += ", ";
      return Begin(c, json);
    case State::kFirstKey:
    case State::kKey:
      if (c == '}') return Close(c, json);
      if (c != '"' && c != '\'') return Step::kBad;
      if (state_ == State::kKey) *json += ", ";
      *json += '"';
      quote_ = c;
      string_is_key_ = true;
      state_ = State::kString;
      return Step::kInside;
    case State::kColon:
      if (c != ':') return Step::kBad;
      *json += ": ";
      state_ = State::kValue;
      return Step::kInside;
    case State::kAfter:
      if (c == ']' || c == ')' || c == '}') return Close(c, json);
      if (c != ',' || open_.empty()) return Step::kBad;
      // The comma is told with what follows it: Python lets the last one stand.
      state_ = open_.back() == '{' ? State::kKey : State::kItem;
      return Step::kInside;
    default:
      return Begin(c, json);
  }
}

PythonCallReader::PythonCallReader(std::string_view name) : name_(name), begin_(!name.empty()) {
  if (begin_) phase_ = Phase::kArguments;
}

void PythonCallReader::BeginCall(ResponseEvents* events) {
  begin_ = false;
  call_.Begin(name_, events);
  call_.Arguments("{", events);
  num_arguments_ = 0;
  phase_ = Phase::kArguments;
}

void PythonCallReader::EndCall(ResponseEvents* events) {
  call_.Arguments("}", events);
  call_.whole = true;
  call_.End(events);
  phase_ = Phase::kAfterCall;
}

bool PythonCallReader::Push(char c, ResponseEvents* events) {
  if (begin_) BeginCall(events);
  const bool is_space = JsonScanner::IsSpace(c);
  switch (phase_) {
    case Phase::kStart:
      if (is_space) return true;
      if (c == '[' && !is_list_) {
        is_list_ = true;
        return true;
      }
      if (c == ']' && is_list_) {
        phase_ = Phase::kDone;
        return true;
      }
      name_ = c;
      phase_ = Phase::kName;
      return BeginsName(c);
    case Phase::kName:
      if (c == '(') {
        BeginCall(events);
        return true;
      }
      name_ += c;
      return IsNameByte(c) && name_.size() <= OpenCall::kMaxName;
    case Phase::kArguments:
      if (is_space) return true;
      if (c == ')') {
        EndCall(events);
        return true;
      }
      if (!BeginsName(c)) return false;
      name_ = c;
      phase_ = Phase::kKeyword;
      return true;
    case Phase::kKeyword:
    case Phase::kEquals:
      if (c == '=') {
        if (num_arguments_++ > 0) call_.Arguments(", ", events);
        call_.Arguments(JsonString(name_), events);
        call_.Arguments(": ", events);
        literal_ = PythonLiteral();
        phase_ = Phase::kValue;
        return true;
      }
      if (is_space) {
        phase_ = Phase::kEquals;
        return true;
      }
      name_ += c;
      return phase_ == Phase::kKeyword && IsNameByte(c) && name_.size() <= OpenCall::kMaxName;
    case Phase::kValue: {
      std::string json;
      const PythonLiteral::Step step = literal_.Push(c, &json);
      if (step == PythonLiteral::Step::kBad) return false;
      call_.Arguments(json, events);
      if (step == PythonLiteral::Step::kInside) return true;
      phase_ = Phase::kAfterValue;
      return step == PythonLiteral::Step::kEnds || Push(c, events);
    }
    case Phase::kAfterValue:
      if (is_space) return true;
      if (c == ')') {
        EndCall(events);
        return true;
      }
      phase_ = Phase::kArguments;
      return c == ',';
    case Phase::kAfterCall:
      if (is_space) return true;
      if (c == ']') {
        phase_ = Phase::kDone;
        return true;
      }
      phase_ = Phase::kStart;
      return c == ',';
    case Phase::kDone:
      return is_space;
  }
  return false;
}

bool PythonCallReader::End(bool closed, ResponseEvents* events) {
  if (begin_) BeginCall(events);
  if (call_.begun) {
    call_.End(events);
    return true;
  }
  return phase_ == Phase::kDone || phase_ == Phase::kAfterCall ||
         (phase_ == Phase::kStart && is_list_ && !closed);
}

}  // namespace continuo::text

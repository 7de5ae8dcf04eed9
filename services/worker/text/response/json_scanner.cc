// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/json_scanner.h"

namespace continuo::text {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Step JsonScanner::Ended() {
  state_ = open_.empty() ? State::kDone : State::kAfter;
  return open_.empty() ? Step::kEnds : Step::kInside;
}

JsonScanner::Step JsonScanner::Close(char open) {
  if (open_.empty() || open_.back() != open) return Step::kBad;
  open_.pop_back();
  return Ended();
}

JsonScanner::Step JsonScanner::Value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() >= kMaxDepth) return Step::kBad;
      open_ += c;
      state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
      return Step::kInside;
    case '"':
      string_is_key_ = false;
      state_ = State::kString;
      return Step::kInside;
    case '-':
      state_ = State::kMinus;
      return Step::kInside;
    case 't':
    case 'f':
    case 'n':
      literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::kLiteral;
      return Step::kInside;
    default:
      if (!IsDigit(c)) return Step::kBad;
      state_ = c == '0' ? State::kZero : State::kDigits;
      return Step::kInside;
  }
}

JsonScanner::Step JsonScanner::Number(char c) {
  const auto to = [&](State state) {
    state_ = state;
    return Step::kInside;
  };
  const bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::kMinus:
      if (IsDigit(c)) return to(c == '0' ? State::kZero : State::kDigits);
      return Step::kBad;
    case State::kDigits:
      if (IsDigit(c)) return Step::kInside;
      [[fallthrough]];
    case State::kZero:
      if (c == '.') return to(State::kPoint);
      if (exponent) return to(State::kExponent);
      break;
    case State::kPoint:
      return IsDigit(c) ? to(State::kFraction) : Step::kBad;
    case State::kFraction:
      if (IsDigit(c)) return Step::kInside;
      if (exponent) return to(State::kExponent);
      break;
    case State::kExponent:
      if (c == '+' || c == '-') return to(State::kExponentSign);
      [[fallthrough]];
    case State::kExponentSign:
      return IsDigit(c) ? to(State::kExponentDigits) : Step::kBad;
    default:
      if (IsDigit(c)) return Step::kInside;
      break;
  }
  if (Ended() == Step::kEnds) return Step::kEndedBefore;
  return Push(c);
}

JsonScanner::Step JsonScanner::Push(char c) {
  switch (state_) {
    case State::kString:
      if (c == '\\') state_ = State::kEscape;
      if (c != '"') return Step::kInside;
      if (!string_is_key_) return Ended();
      state_ = State::kColon;
      return Step::kInside;
    case State::kEscape:
      if (c == 'u') {
        state_ = State::kHex;
        hex_ = 4;
        return Step::kInside;
      }
      state_ = State::kString;
      return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos ? Step::kInside
                                                                              : Step::kBad;
    case State::kHex:
      if (!IsHexDigit(c)) return Step::kBad;
      if (--hex_ == 0) state_ = State::kString;
      return Step::kInside;
    case State::kLiteral:
      if (c != literal_.front()) return Step::kBad;
      literal_.remove_prefix(1);
      return literal_.empty() ? Ended() : Step::kInside;
    case State::kValue:
    case State::kFirstItem:
    case State::kFirstKey:
    case State::kKey:
    case State::kColon:
    case State::kAfter:
      break;
    case State::kDone:
      return Step::kBad;
    default:
      return Number(c);
  }
  if (IsSpace(c)) return Step::kInside;
  switch (state_) {
    case State::kFirstItem:
      if (c == ']') return Close('[');
      return Value(c);
    case State::kFirstKey:
      if (c == '}') return Close('{');
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Step::kBad;
      string_is_key_ = true;
      state_ = State::kString;
      return Step::kInside;
    case State::kColon:
      if (c != ':') return Step::kBad;
      state_ = State::kValue;
      return Step::kInside;
    case State::kAfter:
      if (c == '}' || c == ']') return Close(c == '}' ? '{' : '[');
      if (c != ',') return Step::kBad;
      state_ = open_.back() == '{' ? State::kKey : State::kValue;
      return Step::kInside;
    default:
      return Value(c);
  }
}

bool IsJsonObject(std::string_view text) {
  JsonScanner scanner;
  if (!text.starts_with('{')) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (scanner.in_string() && static_cast<unsigned char>(text[i]) < 0x20) return false;
    const JsonScanner::Step step = scanner.Push(text[i]);
    if (step == JsonScanner::Step::kEnds) return i + 1 == text.size();
    if (step != JsonScanner::Step::kInside) return false;
  }
  return false;
}

void AppendJsonEscaped(char c, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    *out += c;
    return;
  }
  *out += "\\u00";
  *out += kHex[c >> 4];
  *out += kHex[c & 15];
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) AppendJsonEscaped(c, &out);
  return out + '"';
}

}  // namespace continuo::text

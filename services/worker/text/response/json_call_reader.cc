// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/json_call_reader.h"

#include "nlohmann/json.hpp"

namespace continuo::text {
namespace {

// The string whose JSON has these bytes between its quotes. False where they are no such thing.
bool Unquote(std::string_view between, std::string* text) {
  std::string quoted = "\"";
  for (const char c : between) {
    // Models write control characters as they are.
    if (static_cast<unsigned char>(c) < 0x20) {
      AppendJsonEscaped(c, &quoted);
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  const nlohmann::json parsed = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_string()) return false;
  *text = parsed.get<std::string>();
  return true;
}

}  // namespace

JsonCallReader::JsonCallReader(const ResponseField* field, std::string_view name)
    : field_(field), known_name_(name), lax_(field->unquoted_keys, &field->string_delimiters) {}

bool JsonCallReader::Push(char c, ResponseEvents* events) {
  if (!lax_.active()) return PushJson(c, events);
  std::string json;
  lax_.Push(c, &json);
  for (const char byte : json) {
    if (!PushJson(byte, events)) return false;
  }
  return true;
}

bool JsonCallReader::PushSpecial(std::string_view token, ResponseEvents* events) {
  if (!lax_.active()) return true;
  std::string json;
  lax_.PushSpecial(token, &json);
  for (const char byte : json) {
    if (!PushJson(byte, events)) return false;
  }
  return true;
}

bool JsonCallReader::PushJson(char c, ResponseEvents* events) {
  const bool is_space = JsonScanner::IsSpace(c);
  switch (phase_) {
    case Phase::kStart:
      if (is_space) return true;
      if (c == '[' && !is_list_ && known_name_.empty()) {
        is_list_ = true;
        return true;
      }
      if (c == ']' && is_list_) {
        phase_ = Phase::kDone;
        return true;
      }
      [[fallthrough]];
    case Phase::kItem:
      if (is_space) return true;
      if (c != '{') return false;
      has_arguments_ = false;
      if (field_->name_in_open) call_.Begin(known_name_, events);
      if (!field_->arguments_key.empty()) {
        phase_ = Phase::kFirstKey;
        return true;
      }
      scanner_ = JsonScanner();
      phase_ = Phase::kArguments;
      return ArgumentByte(c, events);
    case Phase::kFirstKey:
      if (c == '}') return ObjectEnds(events);
      [[fallthrough]];
    case Phase::kKey:
      if (is_space) return true;
      if (c != '"') return false;
      text_.clear();
      phase_ = Phase::kKeyString;
      return true;
    case Phase::kKeyString:
    case Phase::kName:
    case Phase::kQuoted:
      if (c == '"' && !escaped_) {
        if (phase_ == Phase::kName) return NameIsRead(events);
        if (phase_ == Phase::kQuoted) return QuotedIsRead(events);
        phase_ = Phase::kColon;
        return true;
      }
      escaped_ = c == '\\' && !escaped_;
      text_ += c;
      return text_.size() <= (phase_ == Phase::kQuoted ? OpenCall::kMaxHeld : OpenCall::kMaxName);
    case Phase::kColon:
      if (is_space) return true;
      phase_ = Phase::kValue;
      return c == ':';
    case Phase::kValue:
      if (is_space) return true;
      return Value(c, events);
    case Phase::kArguments:
      return ArgumentByte(c, events);
    case Phase::kSkip:
      switch (scanner_.Push(c)) {
        case JsonScanner::Step::kInside:
          return true;
        case JsonScanner::Step::kEnds:
          phase_ = Phase::kAfterValue;
          return true;
        case JsonScanner::Step::kEndedBefore:
          phase_ = Phase::kAfterValue;
          return PushJson(c, events);
        case JsonScanner::Step::kBad:
          return false;
      }
      return false;
    case Phase::kAfterValue:
      if (is_space) return true;
      if (c == '}') return ObjectEnds(events);
      phase_ = Phase::kKey;
      return c == ',';
    case Phase::kAfterItem:
      if (is_space) return true;
      phase_ = c == ']' ? Phase::kDone : Phase::kItem;
      return c == ']' || c == ',';
    case Phase::kDone:
      return is_space;
  }
  return false;
}

bool JsonCallReader::Value(char c, ResponseEvents* events) {
  if (text_ == field_->name_key && !field_->name_in_open) {
    text_.clear();
    phase_ = Phase::kName;
    return c == '"' && !call_.begun;
  }
  scanner_ = JsonScanner();
  // Some models call the arguments so whatever their template shows.
  const bool is_arguments = text_ == field_->arguments_key ||
                            (field_->arguments_key == "arguments" && text_ == "parameters");
  if (is_arguments && !has_arguments_) {
    has_arguments_ = true;
    if (c == '{') {
      phase_ = Phase::kArguments;
      return ArgumentByte(c, events);
    }
    if (c == '"') {
      text_.clear();
      phase_ = Phase::kQuoted;
      return true;
    }
    if (c != 'n') return false;  // null, for none
    has_arguments_ = false;
  }
  phase_ = Phase::kSkip;
  return PushJson(c, events);
}

bool JsonCallReader::TellArguments(std::string_view bytes, ResponseEvents* events) {
  if (call_.begun) {
    call_.Arguments(bytes, events);
    return true;
  }
  held_ += bytes;
  return held_.size() <= OpenCall::kMaxHeld;
}

bool JsonCallReader::ArgumentByte(char c, ResponseEvents* events) {
  const bool in_string = scanner_.in_string();
  const JsonScanner::Step step = scanner_.Push(c);
  if (step != JsonScanner::Step::kInside && step != JsonScanner::Step::kEnds) return false;
  std::string bytes(1, c);
  if (in_string && static_cast<unsigned char>(c) < 0x20) {
    bytes.clear();
    AppendJsonEscaped(c, &bytes);
  }
  if (!TellArguments(bytes, events)) return false;
  if (step != JsonScanner::Step::kEnds) return true;
  call_.whole = true;
  if (!field_->arguments_key.empty()) {
    phase_ = Phase::kAfterValue;
    return true;
  }
  call_.End(events);
  phase_ = Phase::kDone;
  return true;
}

bool JsonCallReader::NameIsRead(ResponseEvents* events) {
  std::string name;
  phase_ = Phase::kAfterValue;
  if (!Unquote(text_, &name) || name.empty()) return false;
  const bool whole = call_.whole;
  call_.Begin(name, events);
  call_.whole = whole;
  call_.Arguments(held_, events);
  held_.clear();
  return true;
}

// Arguments as a string that holds their JSON.
bool JsonCallReader::QuotedIsRead(ResponseEvents* events) {
  std::string json;
  phase_ = Phase::kAfterValue;
  if (!Unquote(text_, &json) || !IsJsonObject(json)) return false;
  call_.whole = true;
  return TellArguments(json, events);
}

bool JsonCallReader::ObjectEnds(ResponseEvents* events) {
  if (!call_.begun) return false;
  if (!has_arguments_) call_.Arguments("{}", events);
  call_.whole = true;
  call_.End(events);
  phase_ = is_list_ ? Phase::kAfterItem : Phase::kDone;
  return true;
}

bool JsonCallReader::End(bool closed, ResponseEvents* events) {
  if (call_.begun) {
    call_.End(events);
    return true;
  }
  if (phase_ == Phase::kDone || phase_ == Phase::kAfterItem) return true;
  if (phase_ != Phase::kStart || known_name_.empty()) return false;
  // A name without arguments.
  call_.Begin(known_name_, events);
  call_.whole = closed;
  if (closed) call_.Arguments("{}", events);
  call_.End(events);
  return true;
}

}  // namespace continuo::text

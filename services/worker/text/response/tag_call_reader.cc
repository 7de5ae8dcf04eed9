// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/tag_call_reader.h"

#include "absl/strings/ascii.h"
#include "nlohmann/json.hpp"
#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::text {
namespace {

constexpr int kMaxSchemaDepth = 16;

uint8_t TypeOf(std::string_view name) {
  constexpr std::pair<std::string_view, ParameterTypes::Type> kTypes[] = {
      {"string", ParameterTypes::kString}, {"integer", ParameterTypes::kInteger},
      {"number", ParameterTypes::kNumber}, {"boolean", ParameterTypes::kBoolean},
      {"null", ParameterTypes::kNull},     {"object", ParameterTypes::kObject},
      {"array", ParameterTypes::kArray},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return 0;
}

uint8_t TypesOf(const nlohmann::json& schema, int depth) {
  uint8_t types = 0;
  if (!schema.is_object() || depth > kMaxSchemaDepth) return 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types |= TypeOf(type->get<std::string>());
    if (type->is_array()) {
      for (const auto& one : *type) {
        if (one.is_string()) types |= TypeOf(one.get<std::string>());
      }
    }
  } else if (const auto values = schema.find("enum"); values != schema.end()) {
    bool all_strings = values->is_array() && !values->empty();
    for (const auto& value : *values) all_strings &= value.is_string();
    if (all_strings) types |= ParameterTypes::kString;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto choices = schema.find(key);
    if (choices == schema.end() || !choices->is_array()) continue;
    for (const auto& choice : *choices) types |= TypesOf(choice, depth + 1);
  }
  if (schema.contains("nullable") && schema["nullable"] == true) types |= ParameterTypes::kNull;
  return types;
}

// JSON of a value's text.
std::string ValueOf(std::string_view text, uint8_t types) {
  const std::string_view trimmed = Strip(text);
  if ((types & ParameterTypes::kNull) && (trimmed == "null" || trimmed == "None")) return "null";
  if (types & ParameterTypes::kBoolean) {
    if (trimmed == "true" || trimmed == "True") return "true";
    if (trimmed == "false" || trimmed == "False") return "false";
  }
  JsonScanner scanner;
  bool is_json = !trimmed.empty();
  bool ended = false;
  for (const char c : trimmed) {
    // A control character in a string would have to be escaped.
    if (ended || (scanner.in_string() && static_cast<unsigned char>(c) < 0x20)) is_json = false;
    if (!is_json) break;
    const JsonScanner::Step step = scanner.Push(c);
    is_json = step == JsonScanner::Step::kInside || step == JsonScanner::Step::kEnds;
    ended = step == JsonScanner::Step::kEnds;
  }
  // A number ends with what follows it.
  is_json = is_json && (ended || scanner.Push(' ') == JsonScanner::Step::kEndedBefore);
  if (!is_json) return JsonString(text);
  const char first = trimmed.front();
  const bool is_number = first == '-' || absl::ascii_isdigit(static_cast<unsigned char>(first));
  const uint8_t type = first == '{'   ? ParameterTypes::kObject
                       : first == '[' ? ParameterTypes::kArray
                       : is_number    ? ParameterTypes::kNumber | ParameterTypes::kInteger
                       : first == '"' ? ParameterTypes::kString
                       : first == 'n' ? ParameterTypes::kNull
                                      : ParameterTypes::kBoolean;
  // Where a string is wanted, too, a text in quotes is that text.
  const bool wanted = types == 0 || ((types & type) != 0 && first != '"');
  return wanted ? std::string(trimmed) : JsonString(text);
}

}  // namespace

void ParameterTypes::Add(std::string_view tool, std::string_view schema) {
  const nlohmann::json parsed = nlohmann::json::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return;
  const auto properties = parsed.find("properties");
  if (properties == parsed.end() || !properties->is_object()) return;
  for (const auto& [name, property] : properties->items()) {
    if (const uint8_t types = TypesOf(property, 0); types != 0) {
      types_[{std::string(tool), name}] = types;
    }
  }
}

uint8_t ParameterTypes::Of(std::string_view tool, std::string_view parameter) const {
  const auto found = types_.find(std::pair(std::string(tool), std::string(parameter)));
  return found == types_.end() ? 0 : found->second;
}

TagCallReader::TagCallReader(const ResponseField* field, std::string_view name,
                             const ParameterTypes* types)
    : field_(field), name_(name), types_(types) {}

void TagCallReader::BeginIfNot(ResponseEvents* events) {
  if (call_.begun) return;
  call_.Begin(name_, events);
  call_.Arguments("{", events);
}

bool TagCallReader::Push(char c, ResponseEvents* events) {
  BeginIfNot(events);
  held_ += c;
  Scan(/*at_end=*/false, events);
  return true;
}

bool TagCallReader::PushSpecial(std::string_view token, ResponseEvents* events) {
  BeginIfNot(events);
  // A tag may be a special token. One that is no tag is left out.
  const Pattern& tag = in_value_ ? field_->tag_close : field_->tag_open;
  if (held_.empty() && tag.MatchAt(token, false, false).state == Pattern::Match::State::kNone) {
    return true;
  }
  held_ += token;
  Scan(/*at_end=*/false, events);
  return true;
}

void TagCallReader::Scan(bool at_end, ResponseEvents* events) {
  size_t at = 0;
  while (at < held_.size()) {
    const Pattern& tag = in_value_ ? field_->tag_close : field_->tag_open;
    Pattern::Match match;
    if (tag.MayBeginWith(held_[at])) {
      match = tag.MatchAt(std::string_view(held_).substr(at), false, at_end);
    }
    if (match.state == Pattern::Match::State::kPending) break;
    if (match.state == Pattern::Match::State::kNone || match.length == 0) {
      if (in_value_) {
        ValueBytes(std::string_view(held_).substr(at, 1), events);
      } else if (rest_.size() < OpenCall::kMaxHeld) {
        rest_ += held_[at];
      }
      ++at;
      continue;
    }
    at += match.length;
    if (in_value_) {
      ValueEnds(events);
      continue;
    }
    in_value_ = true;
    const std::string_view key = Strip(match.group("key"));
    call_.Arguments(num_values_++ > 0 ? ", " : "", events);
    call_.Arguments(JsonString(key), events);
    call_.Arguments(": ", events);
    type_ = types_ == nullptr ? 0 : types_->Of(name_, key);
    streams_ = type_ == ParameterTypes::kString;
    if (streams_) call_.Arguments("\"", events);
  }
  held_.erase(0, at);
}

void TagCallReader::ValueBytes(std::string_view bytes, ResponseEvents* events) {
  if (!streams_ && value_.size() + bytes.size() > OpenCall::kMaxHeld) {
    // Too long to wait for: a string, whatever it is.
    streams_ = true;
    call_.Arguments("\"", events);
    std::string escaped;
    for (const char c : value_) AppendJsonEscaped(c, &escaped);
    value_.clear();
    call_.Arguments(escaped, events);
  }
  if (!streams_) {
    value_ += bytes;
    return;
  }
  std::string escaped;
  for (const char c : bytes) AppendJsonEscaped(c, &escaped);
  call_.Arguments(escaped, events);
}

void TagCallReader::ValueEnds(ResponseEvents* events) {
  call_.Arguments(streams_ ? "\"" : ValueOf(value_, type_), events);
  in_value_ = false;
  value_.clear();
}

bool TagCallReader::End(bool closed, ResponseEvents* events) {
  BeginIfNot(events);
  if (!closed && !in_value_) held_.clear();  // half a tag
  Scan(/*at_end=*/true, events);
  if (in_value_ && !streams_) {
    // The text of a value that was cut is told as a string without its end.
    call_.Arguments("\"", events);
    streams_ = true;
    std::string value;
    value.swap(value_);
    ValueBytes(value, events);
  }
  call_.whole = closed && !in_value_;
  if (call_.whole) call_.Arguments("}", events);
  call_.End(events);
  return true;
}

std::string TagCallReader::TakeRest() {
  std::string_view rest = Strip(rest_);
  while (rest.starts_with("</")) {
    const size_t end = rest.find('>');
    rest = end == rest.npos ? std::string_view() : Strip(rest.substr(end + 1));
  }
  std::string result(rest);
  rest_.clear();
  return result;
}

}  // namespace continuo::text

// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/lax_json.h"

#include "absl/strings/ascii.h"
#include "services/worker/text/response/json_scanner.h"

namespace continuo::text {
namespace {

constexpr size_t kMaxWord = 1024;

bool IsWord(char c) {
  return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

void LaxJson::Push(char c, std::string* json) {
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
    *json += c;
    return;
  }
  pending_ += c;
  // Takes the beginning of what is pending until the rest may be a delimiter.
  while (!pending_.empty()) {
    bool may_be = false;
    if (close_ != nullptr) {
      may_be = close_->starts_with(pending_);
      if (may_be && pending_ == *close_) {
        pending_.clear();
        *json += '"';
        close_ = nullptr;
      }
    } else {
      for (const auto& [open, close] : *delimiters_) {
        if (!open.starts_with(pending_)) continue;
        may_be = true;
        if (pending_ == open) {
          pending_.clear();
          Open(&close, json);
          break;
        }
      }
    }
    if (may_be) return;
    const char first = pending_.front();
    pending_.erase(0, 1);
    if (close_ != nullptr) {
      AppendJsonEscaped(first, json);
    } else {
      Plain(first, json);
    }
  }
}

void LaxJson::PushSpecial(std::string_view token, std::string* json) {
  if (in_string_) return;
  if (close_ != nullptr) {
    if (token != *close_) return;
    for (const char c : pending_) AppendJsonEscaped(c, json);
    pending_.clear();
    *json += '"';
    close_ = nullptr;
    return;
  }
  for (const auto& [open, close] : *delimiters_) {
    if (token != open) continue;
    for (const char c : pending_) Plain(c, json);
    pending_.clear();
    Open(&close, json);
    return;
  }
}

void LaxJson::Open(const std::string* close, std::string* json) {
  EndWord('"', json);
  key_may_follow_ = false;
  *json += '"';
  close_ = close;
}

void LaxJson::EndWord(char next, std::string* json) {
  if (!in_word_) return;
  in_word_ = false;
  *json += next == ':' ? JsonString(word_) : word_;
  word_.clear();
}

void LaxJson::Plain(char c, std::string* json) {
  if (in_word_ && IsWord(c) && word_.size() < kMaxWord) {
    word_ += c;
    return;
  }
  EndWord(c, json);
  if (unquoted_keys_ && key_may_follow_ && IsWord(c)) {
    in_word_ = true;
    word_ = c;
    key_may_follow_ = false;
    return;
  }
  if (!JsonScanner::IsSpace(c)) key_may_follow_ = c == '{' || c == ',';
  if (c == '"') in_string_ = true;
  *json += c;
}

}  // namespace continuo::text

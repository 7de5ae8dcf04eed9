// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/answer/logprobs_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/gateway/openai/json/json_text.h"

namespace continuo::gateway::openai {
namespace {

// Appends a comma before each element of a list but the first.
void Separate(std::string* list) {
  if (!list->empty()) list->push_back(',');
}

// Appends the members of an object without its end.
void AppendChatToken(const std::string& token, float logprob, std::string* json) {
  json->append(R"({"token":)");
  AppendString(token, json);
  json->append(R"(,"logprob":)");
  AppendNumber(logprob, json);
  json->append(R"(,"bytes":[)");
  bool first = true;
  for (const char c : token) {
    absl::StrAppend(json, first ? "" : ",", static_cast<int>(static_cast<unsigned char>(c)));
    first = false;
  }
  json->push_back(']');
}

// The token as clients see it; `proto` is a TokenLogprob, an alternative or a PromptToken.
template <typename Proto>
const std::string& TokenOf(const Proto& proto) {
  return proto.special_token().empty() ? proto.token() : proto.special_token();
}

std::string CompletionToken(const std::string& token) {
  if (ToValidUtf8(token) == token) return token;
  std::string escaped = "bytes:";
  for (const char c : token) {
    absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(c));
  }
  return escaped;
}

}  // namespace

void ChatLogprobs::AddFirst(const v1::PromptToken& /*token*/) {
  CONTINUO_CHECK(false);  // a chat repeats no prompt
}

void ChatLogprobs::Add(const v1::TokenLogprob& logprob) {
  Separate(&entries_);
  AppendChatToken(TokenOf(logprob), logprob.logprob(), &entries_);
  entries_.append(R"(,"top_logprobs":[)");
  bool first = true;
  for (const v1::TokenLogprob::Alternative& alternative : logprob.alternatives()) {
    if (!std::exchange(first, false)) entries_.push_back(',');
    AppendChatToken(TokenOf(alternative), alternative.logprob(), &entries_);
    entries_.push_back('}');
  }
  entries_.append("]}");
}

std::string ChatLogprobs::Take() {
  if (entries_.empty()) return "null";
  std::string json = std::exchange(entries_, {});
  json.insert(0, R"({"content":[)").append(R"(],"refusal":null})");
  return json;
}

void CompletionLogprobs::AddToken(const std::string& token, const std::string& special_token) {
  Separate(&tokens_);
  AppendString(CompletionToken(special_token.empty() ? token : special_token), &tokens_);
  Separate(&offsets_);
  absl::StrAppend(&offsets_, offset_);
  std::string_view text = token;
  if (!special_token.empty() && echo_.starts_with(special_token)) {
    text = special_token;
  } else if (!echo_.empty() && text.starts_with(' ') && !echo_.starts_with(' ') &&
             echo_.starts_with(text.substr(1))) {
    text.remove_prefix(1);  // the space that tokenizers of SentencePiece put before a text
  }
  echo_.remove_prefix(std::min(text.size(), echo_.size()));
  // A character counts in the token that has its first byte.
  offset_ += std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void CompletionLogprobs::AddFirst(const v1::PromptToken& token) {
  AddToken(token.token(), token.special_token());
  Separate(&logprobs_);
  logprobs_.append("null");
  Separate(&top_);
  top_.append("null");
}

void CompletionLogprobs::Add(const v1::TokenLogprob& logprob) {
  AddToken(logprob.token(), logprob.special_token());
  const std::string chosen = CompletionToken(TokenOf(logprob));
  Separate(&logprobs_);
  AppendNumber(logprob.logprob(), &logprobs_);

  // Of several tokens with the same text only the most likely one is listed.
  std::vector<std::string> names;
  Separate(&top_);
  top_.push_back('{');
  const auto add = [&](std::string name, float value) {
    if (std::ranges::find(names, name) != names.end()) return;
    if (!names.empty()) top_.push_back(',');
    AppendString(name, &top_);
    top_.push_back(':');
    AppendNumber(value, &top_);
    names.push_back(std::move(name));
  };
  for (const v1::TokenLogprob::Alternative& alternative : logprob.alternatives()) {
    add(CompletionToken(TokenOf(alternative)), alternative.logprob());
  }
  // The chosen token is always listed.
  add(chosen, logprob.logprob());
  top_.push_back('}');
}

std::string CompletionLogprobs::Take() {
  if (tokens_.empty()) return "null";
  std::string json = std::exchange(top_, {});
  json.insert(0, absl::StrCat(R"({"tokens":[)", tokens_, R"(],"token_logprobs":[)", logprobs_,
                              R"(],"top_logprobs":[)"));
  absl::StrAppend(&json, R"(],"text_offset":[)", offsets_, "]}");
  tokens_.clear();
  logprobs_.clear();
  offsets_.clear();
  return json;
}

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/logprobs_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/utf8.h"

namespace continuo::gateway::openai {
namespace {

OrderedJson ChatToken(const std::string& token, float logprob) {
  OrderedJson bytes = OrderedJson::array();
  for (const char c : token) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", ToValidUtf8(token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
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

OrderedJson ChatLogprob(const v1::TokenLogprob& logprob) {
  OrderedJson entry = ChatToken(logprob.token(), logprob.logprob());
  OrderedJson top = OrderedJson::array();
  for (const v1::TokenLogprob::Alternative& alternative : logprob.alternatives()) {
    top.push_back(ChatToken(alternative.token(), alternative.logprob()));
  }
  entry["top_logprobs"] = std::move(top);
  return entry;
}

void CompletionLogprobs::Add(const v1::TokenLogprob& logprob, OrderedJson* arrays) {
  if (arrays->is_null()) {
    *arrays = {{"tokens", OrderedJson::array()},
               {"token_logprobs", OrderedJson::array()},
               {"top_logprobs", OrderedJson::array()},
               {"text_offset", OrderedJson::array()}};
  }
  OrderedJson top = OrderedJson::object();
  for (const v1::TokenLogprob::Alternative& alternative : logprob.alternatives()) {
    // Of several that read alike, the most likely one.
    top.emplace(CompletionToken(alternative.token()), alternative.logprob());
  }
  // The chosen token is always among them.
  top.emplace(CompletionToken(logprob.token()), logprob.logprob());
  (*arrays)["tokens"].push_back(CompletionToken(logprob.token()));
  (*arrays)["token_logprobs"].push_back(logprob.logprob());
  (*arrays)["top_logprobs"].push_back(std::move(top));
  (*arrays)["text_offset"].push_back(offset_);
  // A character counts where its first byte is.
  offset_ += std::ranges::count_if(
      logprob.token(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace continuo::gateway::openai

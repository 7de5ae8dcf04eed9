// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// The log-probabilities of a choice in the form of its endpoint, written as JSON from the first
// token.
// A special token is told by its name.
class LogprobsJson {
 public:
  virtual ~LogprobsJson() = default;
  // Adds the first token of a prompt, which has no log-probability. Only completions repeat a
  // prompt.
  virtual void AddFirst(const v1::PromptToken& token) = 0;
  virtual void Add(const v1::TokenLogprob& logprob) = 0;
  // Returns the tokens since the last call as one value; "null" if there are none.
  virtual std::string Take() = 0;
  // The memory of the value that Take would return.
  virtual size_t num_bytes() const = 0;
};

// For a chat: {"content":[{token, logprob, bytes, top_logprobs} …],"refusal":null}. A part of a
// character is U+FFFD in `token` and exact in `bytes`.
class ChatLogprobs : public LogprobsJson {
 public:
  void AddFirst(const v1::PromptToken& token) override;
  void Add(const v1::TokenLogprob& logprob) override;
  std::string Take() override;
  size_t num_bytes() const override { return entries_.capacity(); }

 private:
  std::string entries_;
};

// For a completion: four arrays tokens, token_logprobs, top_logprobs, text_offset. The offset
// counts characters from the beginning of the choice's text, of which special tokens are no part,
// other than those that a client wrote into a prompt that is repeated as text. A part of a
// character is written as "bytes:\xe2\x82".
class CompletionLogprobs : public LogprobsJson {
 public:
  // `echo` is the repeated text, which outlives this; empty where there is none.
  explicit CompletionLogprobs(std::string_view echo) : echo_(echo) {}

  void AddFirst(const v1::PromptToken& token) override;
  void Add(const v1::TokenLogprob& logprob) override;
  std::string Take() override;
  size_t num_bytes() const override {
    return tokens_.capacity() + logprobs_.capacity() + top_.capacity() + offsets_.capacity();
  }

 private:
  void AddToken(const std::string& token, const std::string& special_token);

  std::string tokens_, logprobs_, top_, offsets_;
  int64_t offset_ = 0;
  std::string_view echo_;  // what is left of it
};

}  // namespace continuo::gateway::openai

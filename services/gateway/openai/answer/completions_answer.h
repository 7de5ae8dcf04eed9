// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/base/utf8.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/answer/logprobs_json.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::openai {

// The answer of /v1/chat/completions and /v1/completions. An event of its stream is "data:
// {…}\n\n"; what is kept is JSON text already.
class CompletionsAnswer : public Answer {
 public:
  // `id` has no prefix. `model` and `created` (Unix seconds) hold until a worker tells its own.
  CompletionsAnswer(AnswerForm form, std::string id, std::string model, int64_t created);

  void Add(int prompt, const v1::GenerateResponse& response, std::string* events) override;
  // Appends the usage, if requested, and "data: [DONE]".
  void AddEnd(std::string* events) override;
  void AddError(const absl::Status& status, std::string_view error, std::string* events) override;
  std::vector<std::string> TakeBody() override;
  size_t num_bytes() const override { return num_bytes_; }

 private:
  // One choice.
  struct Choice {
    bool begun = false;  // it has had an event
    bool has_delta = false;
    std::string text, reasoning;  // escaped as in a JSON string
    // Each call as JSON, as far as it has come; its last quote and brackets are missing.
    std::vector<std::string> calls;
    std::string token_ids;                   // as JSON, without brackets
    std::string_view finish_reason;          // empty until it is known
    std::unique_ptr<LogprobsJson> logprobs;  // null unless requested

    size_t num_bytes() const;
  };

  // A prompt that is repeated or told of.
  struct Prompt {
    // These two are of a prompt of token ids.
    bool has_first = false;  // the first token was told
    Utf8Assembler text;
    // Both are JSON without its brackets.
    std::string token_ids, logprobs;
  };

  bool is_chat() const { return form_.endpoint == Endpoint::kChat; }
  // The text of a JSON object up to its member `choices`, which follows.
  std::string Head(std::string_view object) const;
  // Makes the head of events from what is known of the answer.
  void SetChunkHead();
  OrderedJson Usage() const;
  // The usage as far as it is known from ids.
  OrderedJson UsageSoFar() const;
  void AddEvent(std::string_view choice, std::string* events, std::string_view more = "") const;
  // Appends the events of a delta that the client sees something of.
  void AddDeltaEvents(int index, Choice& choice, const v1::Delta& delta, std::string_view logprobs,
                      std::string* events) const;
  // The new part of the choice, for an event.
  std::string ChunkChoice(int index, const Choice& choice, const v1::Delta& delta,
                          std::string_view logprobs) const;
  // Makes room for the choice; adds its first event, or its part of the echo that is known.
  Choice& Begin(int index, std::string* events);
  // Keeps what a response tells of a prompt and the answer is to have.
  void KeepPrompt(int prompt, const v1::GenerateResponse& response);
  // The members of that, with a comma in front; empty where there are none.
  std::string PromptMembers(int prompt) const;
  // Adds what a response tells of a prompt to each of its choices.
  void AddEcho(int prompt, const v1::GenerateResponse& response, std::string* events);
  // Adds a delta in one or two events, and each of them.
  void AddDeltas(int prompt, const v1::Delta& delta, std::string* events);
  void AddDelta(int prompt, const v1::Delta& delta, std::string* events);

  const AnswerForm form_;
  const std::string id_;
  std::string model_, fingerprint_;
  std::string chunk_head_;  // of a stream's events
  int64_t created_;
  std::vector<Choice> choices_;
  std::vector<Prompt> prompts_;
  bool told_prompt_ids_ = false;  // in a chat's stream
  uint64_t num_prompt_ids_ = 0, num_answer_ids_ = 0;
  v1::Usage usage_;
  size_t num_bytes_ = 0;
};

}  // namespace continuo::gateway::openai

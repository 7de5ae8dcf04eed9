// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerateResponses to what OpenAI's clients expect: events of a stream, or one body. No I/O; not
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/logprobs_json.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::openai {

using OrderedJson = nlohmann::ordered_json;

// What one call answers, with the responses to all its prompts in any order.
class Answer {
 public:
  // `id` without its prefix; `model` and `created` (Unix seconds) count until a worker tells its
  // own.
  Answer(AnswerForm form, std::string id, std::string model, int64_t created);

  // Takes in the next response to one prompt. A stream's events are added to `events`, each
  // "data: {…}\n\n"; else everything is kept until TakeBody, as the text that it will be.
  void Add(int prompt, const v1::GenerateResponse& response, std::string* events);

  // After the last response, of a stream: usage where asked for, and "data: [DONE]".
  void AddEnd(std::string* events) const;
  // After the last response, else: what the body is put together of. Nothing is kept from now on.
  std::vector<std::string> TakeBody();

  const AnswerForm& form() const { return form_; }
  // Memory that what is kept takes.
  size_t num_bytes() const { return num_bytes_; }

 private:
  // One choice.
  struct Choice {
    bool begun = false;                      // an event of it was made
    std::string text, reasoning;             // as in a JSON string
    std::string_view finish_reason;          // empty until it is known
    std::unique_ptr<LogprobsJson> logprobs;  // where asked for

    size_t num_bytes() const;
  };

  bool is_chat() const { return form_.endpoint == Endpoint::kChat; }
  // A JSON object's text up to its member `choices`, which follows.
  std::string Head(std::string_view object) const;
  OrderedJson Usage() const;
  void AddEvent(std::string_view choice, std::string* events) const;
  // The choice as part of an event: what is new.
  std::string ChunkChoice(int index, const Choice& choice, const v1::Delta& delta,
                          std::string_view logprobs) const;
  void Begin(int index, Choice& choice, std::string* events);

  const AnswerForm form_;
  const std::string id_;
  std::string model_, fingerprint_;
  int64_t created_;
  std::vector<Choice> choices_;
  v1::Usage usage_;
  size_t num_bytes_ = 0;
};

// One event of a stream: an error as the last one.
std::string ErrorEvent(std::string_view error_json);

// Bodies of /v1/models and /v1/models/{id}. `created` in Unix seconds.
std::string ModelsJson(const std::vector<v1::Model>& models, int64_t created);
std::string ModelJson(const v1::Model& model, int64_t created);

}  // namespace continuo::gateway::openai

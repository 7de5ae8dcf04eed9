// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/kserve/call/infer_answer.h"
#include "services/gateway/kserve/call/infer_json.h"
#include "services/gateway/openai/answer/answer.h"

namespace continuo::gateway::openai {

// The answers of the Open Inference Protocol over HTTP. An event of a stream is "data: {…}\n\n".
class KserveAnswer : public Answer {
 public:
  // `call` is without its request. Without `binary` the answer is that of generate, or a stream's;
  // else that of infer.
  KserveAnswer(kserve::InferCall call, std::optional<kserve::BinaryOutputs> binary);

  void Add(int prompt, const v1::GenerateResponse& response, std::string* events) override;
  // Appends the event that has the finish reason.
  void AddEnd(std::string* events) override;
  void AddError(const absl::Status& status, std::string_view error, std::string* events) override;
  std::vector<std::string> TakeBody() override;
  BodyForm body_form() const override { return form_; }
  size_t num_bytes() const override { return num_bytes_; }

 private:
  void Keep(const v1::GenerateResponse& response);

  const bool stream_;
  const std::optional<kserve::BinaryOutputs> binary_;
  kserve::InferAnswer answer_;
  v1::GenerateResponse whole_;  // what is kept, one delta for each sequence
  size_t num_bytes_ = 0;
  std::string last_event_;  // waits for the end, so that a client that has it has all
  BodyForm form_;
};

}  // namespace continuo::gateway::openai

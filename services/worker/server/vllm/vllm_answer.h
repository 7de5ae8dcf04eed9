// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "vllm/vllm_engine.pb.h"

namespace continuo::server {

// Makes the responses of vllm.grpc.engine to one generation of those of continuo.v1, which are
// added in their order. Not thread-safe.
class VllmAnswer {
 public:
  // What the answer takes from its request.
  struct Form {
    bool stream = false;
    bool has_alternatives = false;         // of the answer's tokens
    bool has_prompt_alternatives = false;  // of the prompt's
  };
  explicit VllmAnswer(const Form& form) : form_(form) {}

  // A stream has a chunk for each delta, and behind the last one of a sequence its end. Without a
  // stream there are the ends alone.
  std::vector<vllm::grpc::engine::GenerateResponse> Add(const v1::GenerateResponse& response);

 private:
  void AddPrompt(const v1::GenerateResponse& response);
  vllm::grpc::engine::GenerateResponse Chunk(const v1::Delta& delta);
  // `last` is the chunk of the sequence's last delta.
  vllm::grpc::engine::GenerateResponse End(const vllm::grpc::engine::GenerateStreamChunk& last,
                                           const v1::Delta& delta) const;

  const Form form_;
  uint32_t prompt_tokens_ = 0, cached_tokens_ = 0;  // as far as a worker has told
  vllm::grpc::engine::InputLogProbs prompt_;        // empty where nobody asked
  std::vector<bool> has_begun_;                     // by sequence
};

// The vector of the one input of the response.
vllm::grpc::engine::EmbedResponse ToVllm(const v1::EmbedResponse& response);

}  // namespace continuo::server

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "inference/grpc_service.pb.h"
#include "services/gateway/kserve/call/infer_request.h"

namespace continuo::gateway::kserve {

// Makes the responses of one generation. Not thread-safe.
class InferAnswer {
 public:
  // `call` is without its request.
  explicit InferAnswer(InferCall call);

  // The next response of a stream, or the only one; nullopt where nothing of it is told.
  std::optional<inference::ModelInferResponse> Add(const v1::GenerateResponse& response);
  // The response without outputs that ends a stream, where that was asked for.
  std::optional<inference::ModelInferResponse> End() const;

 private:
  inference::ModelInferResponse Head(bool is_final) const;
  void AddTexts(const char* name, const std::vector<std::string>& texts,
                inference::ModelInferResponse* response) const;
  void AddNumber(const char* name, uint32_t number, inference::ModelInferResponse* response) const;

  const InferCall call_;
  std::string model_;
  std::string echo_;  // until it was told
  uint32_t num_prompt_tokens_ = 0;
};

}  // namespace continuo::gateway::kserve

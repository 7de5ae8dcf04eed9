// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes the answers of the Open Inference Protocol over HTTP; the sources are infer_json.h's. Pure
// functions.

#include <string>
#include <string_view>

#include "inference/grpc_service.pb.h"
#include "services/gateway/kserve/call/infer_json.h"

namespace continuo::gateway::kserve {

// A body: JSON, and behind it the outputs that come as bytes.
struct InferBody {
  std::string json, binary;
};

// The answer of `infer`. The response has its outputs in `contents`.
InferBody InferJson(const inference::ModelInferResponse& response, const BinaryOutputs& binary);

// The answer of `generate`, or one event's data: each output is a member, an array where it has
// more than one element.
std::string GenerateJson(const inference::ModelInferResponse& response);

std::string ServerMetadataJson(const inference::ServerMetadataResponse& metadata);
std::string ModelMetadataJson(const inference::ModelMetadataResponse& metadata);
std::string RepositoryIndexJson(const inference::RepositoryIndexResponse& index);

// The body of an error.
std::string InferErrorJson(std::string_view message);

}  // namespace continuo::gateway::kserve

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Describes the gateway and the models that a caller may use, in the messages of the Open Inference
// Protocol. Models that are known to generate nothing are left out. Pure functions.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "inference/grpc_service.pb.h"

namespace continuo::gateway::kserve {

inference::ServerMetadataResponse ServerMetadataOf(const std::string& gateway_version);

// True if a worker has the model. An empty version stands for every one.
bool IsReady(const std::vector<v1::Model>& models, const std::string& name,
             const std::string& version);

// NOT_FOUND where the model is not served.
absl::StatusOr<inference::ModelMetadataResponse> ModelMetadataOf(
    const std::vector<v1::Model>& models, const std::string& name, const std::string& version);

// INVALID_ARGUMENT for a named repository.
absl::StatusOr<inference::RepositoryIndexResponse> RepositoryIndexOf(
    const std::vector<v1::Model>& models, const inference::RepositoryIndexRequest& request);

}  // namespace continuo::gateway::kserve

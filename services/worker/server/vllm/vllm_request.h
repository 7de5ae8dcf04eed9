// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "vllm/vllm_engine.pb.h"

namespace continuo::server {

// Read a request of vllm.grpc.engine as the same of continuo.v1, with vLLM's defaults: it has no
// model's own. INVALID_ARGUMENT names a field of the former that asks for what is not done here.
// What is checked for every request is left to its own check.
absl::StatusOr<v1::GenerateRequest> ReadVllmGenerate(
    const vllm::grpc::engine::GenerateRequest& request);
absl::StatusOr<v1::EmbedRequest> ReadVllmEmbed(const vllm::grpc::engine::EmbedRequest& request);

// An error that names a field of continuo.v1 then names the one of vllm.grpc.engine that it was
// read from.
absl::Status WithVllmField(const absl::Status& status);

}  // namespace continuo::server

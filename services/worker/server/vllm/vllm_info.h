// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/server/session/served_model.h"
#include "vllm/vllm_engine.pb.h"

namespace continuo::server {

// What vllm.grpc.engine tells of a worker. There is one data-parallel rank, 0. `version` is that of
// the program.
// `path` is that of the model's files; gateways on the same disk read the tokenizer there.
vllm::grpc::engine::GetModelInfoResponse VllmModelInfo(const ServedModel& model,
                                                       const std::string& path);
vllm::grpc::engine::GetServerInfoResponse VllmServerInfo(const v1::WatchLoadResponse& load,
                                                         absl::Duration uptime);
vllm::grpc::engine::GetLoadsResponse VllmLoads(const v1::WatchLoadResponse& load, absl::Time now,
                                               std::string version);

}  // namespace continuo::server

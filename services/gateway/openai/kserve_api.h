// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/http/http_message.h"
#include "services/gateway/openai/routes/routes.h"

namespace continuo::gateway::openai {

// The state that the Open Inference Protocol describes over HTTP.
struct KserveInfo {
  std::vector<v1::Model> models;  // that the caller may use
  bool is_ready = false;          // a worker takes requests
  std::string gateway_version;
};

// The model's own name where a path in the form of PathOf has it as `name`, which differs where a
// name is a path itself.
std::string OwnName(const std::vector<v1::Model>& models, std::string_view name);

// The answer to one of RouteId::kInferenceServer to kRepositoryIndex. The path is in the form of
// PathOf. NOT_FOUND where the model is not served; INVALID_ARGUMENT for a body that is wrong.
absl::StatusOr<HttpResponse> TellServed(const KserveInfo& info, RouteId route,
                                        std::string_view path, std::string_view body);

}  // namespace continuo::gateway::openai

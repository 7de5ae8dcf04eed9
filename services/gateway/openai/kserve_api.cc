// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/kserve_api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/kserve/call/answer_json.h"
#include "services/gateway/kserve/call/served.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// Probes read the status, and some clients the member.
HttpResponse ReadyResponse(bool is_ready) {
  HttpResponse response = {.status = is_ready ? 200 : 503,
                           .body = absl::StrCat(R"({"ready":)", is_ready ? "true" : "false", "}")};
  if (!is_ready) response.headers.emplace_back("Retry-After", "1");
  return response;
}

absl::StatusOr<inference::RepositoryIndexRequest> ReadIndexRequest(std::string_view body) {
  inference::RepositoryIndexRequest request;
  if (body.empty()) return request;
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  for (const auto& [member, value] : json.items()) {
    if (member != "ready") return protocol::FieldError(ShowName(member), "is not known");
    if (!value.is_boolean()) return protocol::FieldError(member, "is neither true nor false");
    request.set_ready(value.get<bool>());
  }
  return request;
}

}  // namespace

std::string OwnName(const std::vector<v1::Model>& models, std::string_view name) {
  for (const v1::Model& model : models) {
    if (NormalPath(absl::StrCat("/", model.name())).substr(1) == name) return model.name();
  }
  return std::string(name);
}

absl::StatusOr<HttpResponse> TellServed(const KserveInfo& info, RouteId route,
                                        std::string_view path, std::string_view body) {
  switch (route) {
    case RouteId::kInferenceServer:
      return HttpResponse{
          .body = kserve::ServerMetadataJson(kserve::ServerMetadataOf(info.gateway_version))};
    case RouteId::kInferenceLive:
      return HttpResponse{.body = R"({"live":true})"};
    case RouteId::kInferenceReady:
      return ReadyResponse(info.is_ready);
    case RouteId::kRepositoryIndex: {
      ASSIGN_OR_RETURN(const inference::RepositoryIndexRequest request, ReadIndexRequest(body));
      ASSIGN_OR_RETURN(const auto index, kserve::RepositoryIndexOf(info.models, request));
      return HttpResponse{.body = kserve::RepositoryIndexJson(index)};
    }
    default:
      break;
  }
  const InferencePath at = InferencePathOf(path);
  const std::string name = OwnName(info.models, at.model), version(at.version);
  ASSIGN_OR_RETURN(const auto metadata, kserve::ModelMetadataOf(info.models, name, version));
  if (route == RouteId::kInferenceModelReady) {
    return ReadyResponse(kserve::IsReady(info.models, name, version));
  }
  return HttpResponse{.body = kserve::ModelMetadataJson(metadata)};
}

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/routes/routes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

namespace http = boost::beast::http;

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/", kCancel = "/cancel";

constexpr Route kRoutes[] = {
    {.id = RouteId::kPage, .path = "/", .takes_get = true},
    {.id = RouteId::kFleet, .path = "/fleet", .takes_get = true, .needs_key = true},
    {.id = RouteId::kChat, .path = "/v1/chat/completions", .takes_post = true, .needs_key = true},
    {.id = RouteId::kCompletions, .path = "/v1/completions", .takes_post = true, .needs_key = true},
    {.id = RouteId::kResponses, .path = "/v1/responses", .takes_post = true, .needs_key = true},
    {.id = RouteId::kResponse,
     .path = "/v1/responses/{response}",
     .takes_get = true,
     .takes_delete = true,
     .needs_key = true},
    {.id = RouteId::kCancelResponse,
     .path = "/v1/responses/{response}/cancel",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kMessages, .path = "/v1/messages", .takes_post = true, .needs_key = true},
    {.id = RouteId::kCountTokens,
     .path = "/v1/messages/count_tokens",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kEmbeddings, .path = "/v1/embeddings", .takes_post = true, .needs_key = true},
    {.id = RouteId::kInferenceServer, .path = "/v2", .takes_get = true, .needs_key = true},
    {.id = RouteId::kInferenceLive, .path = "/v2/health/live", .takes_get = true},
    {.id = RouteId::kInferenceReady, .path = "/v2/health/ready", .takes_get = true},
    {.id = RouteId::kRepositoryIndex,
     .path = "/v2/repository/index",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kInferenceModel,
     .path = "/v2/models/{model}",
     .takes_get = true,
     .needs_key = true},
    {.id = RouteId::kInferenceModelReady,
     .path = "/v2/models/{model}/ready",
     .takes_get = true,
     .needs_key = true},
    {.id = RouteId::kInfer,
     .path = "/v2/models/{model}/infer",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kGenerate,
     .path = "/v2/models/{model}/generate",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kGenerateStream,
     .path = "/v2/models/{model}/generate_stream",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kRerank, .path = "/v1/rerank", .takes_post = true, .needs_key = true},
    {.id = RouteId::kRerank, .path = "/rerank", .takes_post = true, .needs_key = true},
    {.id = RouteId::kRerankV2, .path = "/v2/rerank", .takes_post = true, .needs_key = true},
    {.id = RouteId::kScore, .path = "/v1/score", .takes_post = true, .needs_key = true},
    {.id = RouteId::kScore, .path = "/score", .takes_post = true, .needs_key = true},
    {.id = RouteId::kModels, .path = "/v1/models", .takes_get = true, .needs_key = true},
    {.id = RouteId::kModel, .path = "/v1/models/{model}", .takes_get = true, .needs_key = true},
    {.id = RouteId::kLoadAdapter,
     .path = "/v1/load_lora_adapter",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kUnloadAdapter,
     .path = "/v1/unload_lora_adapter",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kSteps, .path = "/v1/steps", .takes_get = true, .needs_key = true},
    {.id = RouteId::kTokenize, .path = "/tokenize", .takes_post = true, .needs_key = true},
    {.id = RouteId::kTokenize, .path = "/v1/tokenize", .takes_post = true, .needs_key = true},
    {.id = RouteId::kDetokenize, .path = "/detokenize", .takes_post = true, .needs_key = true},
    {.id = RouteId::kDetokenize, .path = "/v1/detokenize", .takes_post = true, .needs_key = true},
    {.id = RouteId::kTokenizerInfo,
     .path = "/tokenizer_info",
     .takes_get = true,
     .needs_key = true},
    {.id = RouteId::kTokenizerInfo,
     .path = "/v1/tokenizer_info",
     .takes_get = true,
     .needs_key = true},
    {.id = RouteId::kHealth, .path = "/health", .takes_get = true},
    {.id = RouteId::kHealthz, .path = "/healthz", .takes_get = true},
    {.id = RouteId::kReadyz, .path = "/readyz", .takes_get = true},
    {.id = RouteId::kPing, .path = "/ping", .takes_get = true, .takes_post = true},
    {.id = RouteId::kVersion, .path = "/version", .takes_get = true},
    {.id = RouteId::kMetrics, .path = "/metrics", .takes_get = true, .needs_key = true},
    // For endpoint pickers, which have no key; it names nobody.
    {.id = RouteId::kLoadMetrics, .path = "/metrics/load", .takes_get = true},
};

constexpr std::string_view kInferencePrefix = "/v2/models/", kVersions = "/versions/";

// What is asked for at the end of a path of a model of the Open Inference Protocol.
constexpr std::pair<std::string_view, RouteId> kInferenceEnds[] = {
    {"/ready", RouteId::kInferenceModelReady},
    {"/infer", RouteId::kInfer},
    {"/generate", RouteId::kGenerate},
    {"/generate_stream", RouteId::kGenerateStream},
};

// The route of the path, from which its end is taken.
RouteId TakeInferenceEnd(std::string_view* path) {
  for (const auto& [end, id] : kInferenceEnds) {
    if (!path->ends_with(end)) continue;
    path->remove_suffix(end.size());
    return id;
  }
  return RouteId::kInferenceModel;
}

// The route whose path has a name in it; kPage where it has none.
RouteId NamedRoute(std::string_view path) {
  if (path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix)) return RouteId::kModel;
  if (path.starts_with(kInferencePrefix)) {
    if (InferencePathOf(path).model.empty()) return RouteId::kPage;
    return TakeInferenceEnd(&path);
  }
  const std::string_view response = ResponseIdOf(path);
  if (response.empty() || response.find('/') != std::string_view::npos) return RouteId::kPage;
  const bool is_whole = kResponsePrefix.size() + response.size() == path.size();
  return is_whole ? RouteId::kResponse : RouteId::kCancelResponse;
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

const Route* FindRoute(std::string_view path) {
  const RouteId named = NamedRoute(path);
  const auto route = std::ranges::find_if(kRoutes, [&](const Route& r) {
    if (named != RouteId::kPage) return r.id == named;
    return r.path == path && path.find('{') == std::string_view::npos;
  });
  return route == std::end(kRoutes) ? nullptr : route;
}

std::string_view ResponseIdOf(std::string_view path) {
  if (!path.starts_with(kResponsePrefix)) return {};
  path.remove_prefix(kResponsePrefix.size());
  if (path.ends_with(kCancel)) path.remove_suffix(kCancel.size());
  return path;
}

InferencePath InferencePathOf(std::string_view path) {
  TakeInferenceEnd(&path);
  // A path that is shorter than the prefix has no model.
  path.remove_prefix(std::min(path.size(), kInferencePrefix.size()));
  const size_t versions = path.rfind(kVersions);
  if (versions == std::string_view::npos) return {.model = path, .version = {}};
  const std::string_view version = path.substr(versions + kVersions.size());
  // A name may be a path itself.
  if (version.empty() || version.find('/') != version.npos) return {.model = path, .version = {}};
  return {.model = path.substr(0, versions), .version = version};
}

std::string_view ModelNameOf(std::string_view path) { return path.substr(kModelPrefix.size()); }

bool Takes(const Route& route, http::verb method) {
  switch (method) {
    case http::verb::get:
    case http::verb::head:
      return route.takes_get;
    case http::verb::post:
      return route.takes_post;
    case http::verb::delete_:
      return route.takes_delete;
    default:
      return method == http::verb::options;
  }
}

std::string AllowOf(const Route* route) {
  const bool get = route == nullptr || route->takes_get;
  const bool post = route == nullptr || route->takes_post;
  const bool del = route == nullptr || route->takes_delete;
  return absl::StrCat(get ? "GET, HEAD, " : "", post ? "POST, " : "", del ? "DELETE, " : "",
                      "OPTIONS");
}

}  // namespace continuo::gateway::openai

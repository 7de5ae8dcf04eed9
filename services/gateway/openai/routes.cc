// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/routes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

namespace http = boost::beast::http;

constexpr std::string_view kModelPrefix = "/v1/models/";

constexpr Route kRoutes[] = {
    {.id = RouteId::kPage, .path = "/", .takes_get = true},
    {.id = RouteId::kFleet, .path = "/fleet", .takes_get = true, .needs_key = true},
    {.id = RouteId::kChat, .path = "/v1/chat/completions", .takes_post = true, .needs_key = true},
    {.id = RouteId::kCompletions, .path = "/v1/completions", .takes_post = true, .needs_key = true},
    {.id = RouteId::kResponses, .path = "/v1/responses", .takes_post = true, .needs_key = true},
    {.id = RouteId::kMessages, .path = "/v1/messages", .takes_post = true, .needs_key = true},
    {.id = RouteId::kCountTokens,
     .path = "/v1/messages/count_tokens",
     .takes_post = true,
     .needs_key = true},
    {.id = RouteId::kModels, .path = "/v1/models", .takes_get = true, .needs_key = true},
    {.id = RouteId::kModel, .path = "/v1/models/{model}", .takes_get = true, .needs_key = true},
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
};

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

const Route* FindRoute(std::string_view path) {
  const bool is_model = path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix);
  const auto route = std::ranges::find_if(kRoutes, [&](const Route& r) {
    return is_model ? r.id == RouteId::kModel : r.id != RouteId::kModel && r.path == path;
  });
  return route == std::end(kRoutes) ? nullptr : route;
}

std::string_view ModelNameOf(std::string_view path) { return path.substr(kModelPrefix.size()); }

bool Takes(const Route& route, http::verb method) {
  switch (method) {
    case http::verb::get:
    case http::verb::head:
      return route.takes_get;
    case http::verb::post:
      return route.takes_post;
    default:
      return method == http::verb::options;
  }
}

std::string AllowOf(const Route* route) {
  const bool get = route == nullptr || route->takes_get;
  const bool post = route == nullptr || route->takes_post;
  return absl::StrCat(get ? "GET, HEAD, " : "", post ? "POST, " : "", "OPTIONS");
}

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The paths that are served over HTTP. Pure functions.

#include <boost/beast/http/verb.hpp>
#include <span>
#include <string>
#include <string_view>

namespace continuo::gateway::openai {

enum class RouteId {
  kPage,
  kFleet,
  kChat,
  kCompletions,
  kMessages,
  kResponses,
  kCountTokens,
  kResponse,  // its path has the response's id at the end
  kCancelResponse,
  kModels,
  kSteps,
  kModel,  // its path has the model's name at the end
  kTokenize,
  kDetokenize,
  kEmbeddings,
  kLoadAdapter,
  kUnloadAdapter,
  // The Open Inference Protocol. The paths from kInferenceModel on have the model's name, and may
  // have its version.
  kInferenceServer,
  kInferenceLive,
  kInferenceReady,
  kRepositoryIndex,
  kInferenceModel,
  kInferenceModelReady,
  kInfer,
  kGenerate,
  kGenerateStream,
  kRerank,
  kRerankV2,
  kScore,
  kTokenizerInfo,
  kHealth,
  kHealthz,
  kReadyz,
  kPing,
  kVersion,
  kMetrics,
  kLoadMetrics,
};

struct Route {
  RouteId id;
  std::string_view path;  // in the form of PathOf
  bool takes_get = false;
  bool takes_post = false;
  bool takes_delete = false;
  bool needs_key = false;  // where there are keys
};

std::span<const Route> Routes();

// The route of a path as PathOf returns it; null if there is none.
const Route* FindRoute(std::string_view path);

// The name of the model at the end of a path of RouteId::kModel.
std::string_view ModelNameOf(std::string_view path);

// The response's id in a path of RouteId::kResponse or RouteId::kCancelResponse.
std::string_view ResponseIdOf(std::string_view path);

// The model and its version in a path of RouteId::kInferenceModel to kGenerateStream; the version
// is empty where the path has none.
struct InferencePath {
  std::string_view model, version;
};
InferencePath InferencePathOf(std::string_view path);

// True if the method may be used with the route. OPTIONS always may.
bool Takes(const Route& route, boost::beast::http::verb method);

// The value of Allow. Null stands for the whole server.
std::string AllowOf(const Route* route);

}  // namespace continuo::gateway::openai

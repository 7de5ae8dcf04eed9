// SPDX-License-Identifier: Apache-2.0
// Any body (the first byte selects the API) gives requests within the limits that can be sent, or
// an error in JSON; and a worker's answer with the body's text is JSON, too.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "services/base/check.h"
#include "services/gateway/openai/adapters/adapters_json.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/embeddings/embeddings_json.h"
#include "services/gateway/openai/embeddings/embeddings_request.h"
#include "services/gateway/openai/rerank/rerank_json.h"
#include "services/gateway/openai/rerank/rerank_request.h"

using continuo::gateway::openai::RouteId;

namespace {

// Each event is a line of JSON, perhaps behind its name; one may be [DONE].
void CheckEvents(const std::string& events) {
  for (size_t begin = 0; begin < events.size();) {
    const size_t end = events.find("\n\n", begin);
    CONTINUO_CHECK(end != std::string::npos);
    std::string_view event = std::string_view(events).substr(begin, end - begin);
    if (event.starts_with("event: ")) event = event.substr(event.find('\n') + 1);
    CONTINUO_CHECK(event.starts_with("data: "));
    event = event.substr(6);
    CONTINUO_CHECK(event == "[DONE]" || nlohmann::json::accept(event));
    begin = end + 2;
  }
}

// A body of /v1/embeddings becomes requests that have all its inputs in order.
void CheckEmbeddings(std::string_view body) {
  namespace openai = continuo::gateway::openai;
  const auto call = openai::ParseEmbeddings(body);
  if (!call.ok()) {
    openai::ErrorForm form = RouteId::kEmbeddings;
    form.names.as_written = true;
    const auto error = nlohmann::json::parse(openai::ErrorBody(form, call.status()));
    CONTINUO_CHECK((form.style == continuo::gateway::openai::ErrorStyle::kOpenInference
                        ? error["error"]
                        : error["error"]["message"])
                       .is_string());
    return;
  }
  int next = 0;
  std::vector<continuo::v1::EmbedResponse> responses;
  for (const continuo::v1::EmbedRequest& part : openai::Divide(call->request, 100000)) {
    // Fails where a text is not UTF-8.
    continuo::v1::EmbedRequest copy;
    CONTINUO_CHECK(copy.ParseFromString(part.SerializeAsString()));
    CONTINUO_CHECK(copy.inputs_size() > 0);
    continuo::v1::EmbedResponse& response = responses.emplace_back();
    for (const continuo::v1::EmbedInput& input : copy.inputs()) {
      CONTINUO_CHECK(input.SerializeAsString() == call->request.inputs(next++).SerializeAsString());
      response.add_embeddings()->add_values(static_cast<float>(input.text().size()) / 3);
    }
  }
  CONTINUO_CHECK(next == call->request.inputs_size());
  const std::string json = openai::EmbeddingsJson(responses, call->request.model(), call->base64);
  CONTINUO_CHECK(nlohmann::json::accept(json));
}

// A request for inference has its JSON up to the first byte 0.
continuo::gateway::openai::HttpRequest RequestOf(RouteId route, std::string_view body) {
  continuo::gateway::openai::HttpRequest request;
  request.target("/v2/models/m/infer");
  const size_t end = body.find('\0');
  if (route == RouteId::kInfer && end != body.npos) {
    request.set("Inference-Header-Content-Length", std::to_string(end));
    request.body().append(body.substr(0, end)).append(body.substr(end + 1));
  } else {
    request.body() = body;
  }
  return request;
}

// A body of /v1/rerank and the like becomes requests that have all its pairs in order.
void CheckRerank(continuo::gateway::openai::ScoreForm form, std::string_view body) {
  namespace openai = continuo::gateway::openai;
  auto call = openai::ParseRerank(form, body);
  if (!call.ok()) {
    openai::ErrorForm error_form = RouteId::kRerank;
    error_form.names.as_written = true;
    const auto error = nlohmann::json::parse(openai::ErrorBody(error_form, call.status()));
    CONTINUO_CHECK(error["error"]["message"].is_string());
    return;
  }
  CONTINUO_CHECK(!call->texts.empty() && call->top_n <= call->texts.size());
  CONTINUO_CHECK(call->queries.size() == 1 || call->queries.size() == call->texts.size());
  const std::vector<std::string> texts = call->texts;
  std::vector<continuo::v1::EmbedResponse> responses;
  for (size_t next = 0; next < texts.size();) {
    const continuo::v1::EmbedRequest part = openai::TakePart(*call, next);
    // Fails where a text is not UTF-8.
    continuo::v1::EmbedRequest copy;
    CONTINUO_CHECK(copy.ParseFromString(part.SerializeAsString()));
    CONTINUO_CHECK(copy.inputs_size() > 0);
    continuo::v1::EmbedResponse& response = responses.emplace_back();
    for (const continuo::v1::EmbedInput& input : copy.inputs()) {
      CONTINUO_CHECK(input.pair().document() == texts[next++]);
      continuo::v1::Embedding& score = *response.add_embeddings();
      score.add_values(static_cast<float>(input.pair().document().size()) / 9);
      score.set_logit(static_cast<double>(input.pair().document().size()));
    }
  }
  const std::string json = openai::RerankJson(*call, responses, "id", call->options.model(), 1);
  CONTINUO_CHECK(nlohmann::json::accept(json));
}

// A body of an update of an adapter becomes one with a name, and its answer is JSON.
void CheckAdapterUpdate(RouteId route, std::string_view body) {
  namespace openai = continuo::gateway::openai;
  using enum continuo::gateway::AdapterUpdate::Kind;
  const auto update =
      openai::ParseAdapterUpdate(route == RouteId::kLoadAdapter ? kLoad : kUnload, body);
  if (!update.ok()) {
    openai::ErrorForm form = route;
    form.names.as_written = true;
    const auto error = nlohmann::json::parse(openai::ErrorBody(form, update.status()));
    CONTINUO_CHECK(error["error"]["message"].is_string());
    return;
  }
  CONTINUO_CHECK(!update->name.empty() && (update->kind == kUnload || !update->path.empty()));
  continuo::gateway::AdapterOutcome outcome{.base = update->base};
  outcome.workers.push_back({update->name, "", absl::NotFoundError(update->path)});
  CONTINUO_CHECK(nlohmann::json::accept(openai::AdapterUpdateJson(*update, outcome)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr RouteId kRoutes[16] = {
      RouteId::kChat,          RouteId::kCompletions,    RouteId::kMessages,
      RouteId::kResponses,     RouteId::kEmbeddings,     RouteId::kRerank,
      RouteId::kRerankV2,      RouteId::kScore,          RouteId::kInfer,
      RouteId::kGenerate,      RouteId::kGenerateStream, RouteId::kLoadAdapter,
      RouteId::kUnloadAdapter, RouteId::kMessages,       RouteId::kResponses,
      RouteId::kGenerateStream};
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const RouteId route = kRoutes[data[0] % std::size(kRoutes)];
  if (route == RouteId::kEmbeddings) {
    CheckEmbeddings(body);
    return 0;
  }
  if (route == RouteId::kLoadAdapter || route == RouteId::kUnloadAdapter) {
    CheckAdapterUpdate(route, body);
    return 0;
  }
  if (route == RouteId::kRerank || route == RouteId::kRerankV2 || route == RouteId::kScore) {
    using enum continuo::gateway::openai::ScoreForm;
    CheckRerank(route == RouteId::kScore      ? kScore
                : route == RouteId::kRerankV2 ? kRerankV2
                                              : kRerank,
                body);
    return 0;
  }
  const auto call = continuo::gateway::openai::ReadCall(route, RequestOf(route, body));
  continuo::gateway::openai::ErrorForm form = route;
  form.names.as_written = !call.ok();
  if (!call.ok()) {
    const auto error =
        nlohmann::json::parse(continuo::gateway::openai::ErrorBody(form, call.status()));
    CONTINUO_CHECK(error["error"]["message"].is_string());
    return 0;
  }
  CONTINUO_CHECK(!call->requests.empty());
  for (const continuo::v1::GenerateRequest& request : call->requests) {
    // Fails where a text is not UTF-8.
    continuo::v1::GenerateRequest copy;
    CONTINUO_CHECK(copy.ParseFromString(request.SerializeAsString()));
    CONTINUO_CHECK(call->requests.size() * request.sampling().num_sequences() <=
                   static_cast<size_t>(continuo::gateway::openai::kMaxChoices));
  }
  const auto answer = call->make_answer("id", call->requests[0].model(), 0);
  continuo::v1::GenerateResponse response;
  continuo::v1::Delta* const delta = response.add_deltas();
  delta->set_reasoning(std::string(body.substr(0, 9)));
  delta->set_text(call->requests[0].text() + call->requests[0].model());
  delta->add_logprobs()->set_token(std::string(body.substr(0, 16)));
  continuo::v1::ToolCall& called = *delta->add_tool_calls();
  called.set_id("c");
  called.set_name(call->requests[0].model());
  called.set_arguments(std::string(body.substr(0, 16)));
  std::string events;
  answer->Add(static_cast<int>(call->requests.size()) - 1, response, &events);
  if (!call->stream) {
    std::vector<std::string> parts = answer->TakeBody();
    // Outputs as bytes are no JSON.
    if (answer->body_form().content_type != "application/json") parts.pop_back();
    CONTINUO_CHECK(nlohmann::json::accept(absl::StrJoin(parts, "")));
    return 0;
  }
  // The end, or a failure, of an answer with a second part.
  response.mutable_accepted()->set_model("m");
  response.mutable_progress()->set_prompt_tokens(3);
  response.mutable_summary()->mutable_usage()->set_prompt_tokens(3);
  response.mutable_deltas(0)->set_finish_reason(continuo::v1::FINISH_REASON_LENGTH);
  answer->Add(0, response, &events);
  if (size % 2 == 0) {
    answer->AddEnd(&events);
  } else {
    answer->AddError(absl::InternalError("x"), ErrorBody(form, absl::InternalError("x")), &events);
  }
  CheckEvents(events);
  return 0;
}

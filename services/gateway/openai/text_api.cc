// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/text_api.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/openai/calls.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/json/text_json.h"
#include "services/gateway/openai/messages/messages_request.h"

namespace continuo::gateway::openai {
template <typename Response, typename Ask>
boost::asio::awaitable<absl::StatusOr<Response>> TextApi::Wait(HttpConnection& connection,
                                                               HttpRequest& request, Ask ask) {
  const ClientCall call = CallOf(request, clock_->Now());
  co_return co_await calls_.Wait<Response>(
      connection, call.deadline, [&](auto done) { return ask(call, std::move(done)); },
      [&] { connection.DropBody(request); });
}

boost::asio::awaitable<TextApi::Answer> TextApi::Serve(HttpConnection& connection, RouteId route,
                                                       HttpRequest request) {
  if (route == RouteId::kTokenize) {
    absl::StatusOr<v1::TokenizeRequest> asked = ParseTokenize(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const bool has_token_strs = asked->return_tokens();
    const auto answer = co_await Wait<v1::TokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskTokenize(call, *std::move(asked), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status()};
    co_return Answer{.body = TokenizeJson(*answer, has_token_strs)};
  }
  if (route == RouteId::kCountTokens) {
    absl::StatusOr<CountTokensCall> asked = ParseCountTokens(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const MessagesTools tools = std::move(asked->tools);
    const auto answer = co_await Wait<v1::TokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskTokenize(call, std::move(asked->request), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status(), .tool_places = tools.places};
    co_return Answer{.body = absl::StrCat("{\"input_tokens\":", answer->token_ids_size(), "}"),
                     .headers = SkippedToolsHeaders(tools.skipped)};
  }
  if (route == RouteId::kDetokenize) {
    absl::StatusOr<v1::DetokenizeRequest> asked = ParseDetokenize(request.body());
    if (!asked.ok()) co_return Answer{.status = asked.status(), .as_written = true};
    const auto answer = co_await Wait<v1::DetokenizeResponse>(
        connection, request, [&](const ClientCall& call, auto done) {
          return service_->AskDetokenize(call, *std::move(asked), std::move(done));
        });
    if (!answer.ok()) co_return Answer{.status = answer.status()};
    co_return Answer{.body = DetokenizeJson(*answer)};
  }
  v1::GetTokenizerRequest asked;
  asked.set_model(QueryValue(connection.query(), "model").value_or(""));
  auto answer = co_await Wait<v1::GetTokenizerResponse>(
      connection, request, [&](const ClientCall& call, auto done) {
        return service_->AskGetTokenizer(call, std::move(asked), std::move(done));
      });
  if (!answer.ok()) co_return Answer{.status = answer.status()};
  co_return Answer{.body = std::move(*answer->mutable_config())};
}

}  // namespace continuo::gateway::openai

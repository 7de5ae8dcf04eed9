// SPDX-License-Identifier: Apache-2.0
// Any body (the first byte selects the endpoint) gives requests within the limits that can be sent,
// or an error in JSON; and a worker's answer with the body's text is JSON, too.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/strings/str_join.h"
#include "services/base/check.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/gateway/openai/json/response_json.h"

using continuo::gateway::openai::Answer;
using continuo::gateway::openai::Endpoint;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Endpoint endpoint = data[0] % 2 == 0 ? Endpoint::kChat : Endpoint::kCompletions;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto call = continuo::gateway::openai::ParseCall(endpoint, body);
  if (!call.ok()) {
    const auto error =
        nlohmann::json::parse(continuo::gateway::openai::ErrorJson(endpoint, call.status()));
    CONTINUO_CHECK(error["error"]["message"].is_string());
    return 0;
  }
  CONTINUO_CHECK(!call->requests.empty());
  CONTINUO_CHECK(call->form.num_sequences >= 1);
  CONTINUO_CHECK(call->requests.size() * static_cast<size_t>(call->form.num_sequences) <=
                 static_cast<size_t>(continuo::gateway::openai::kMaxChoices));
  for (const continuo::v1::GenerateRequest& request : call->requests) {
    // Fails where a text is not UTF-8.
    continuo::v1::GenerateRequest copy;
    CONTINUO_CHECK(copy.ParseFromString(request.SerializeAsString()));
  }
  Answer answer(call->form, "id", call->requests[0].model(), 0);
  std::string events;
  continuo::v1::GenerateResponse response;
  continuo::v1::Delta* const delta = response.add_deltas();
  delta->set_text(call->requests[0].text() + call->requests[0].model());
  delta->add_logprobs()->set_token(std::string(body.substr(0, 16)));
  answer.Add(static_cast<int>(call->requests.size()) - 1, response, &events);
  if (!call->form.stream) {
    CONTINUO_CHECK(nlohmann::json::accept(absl::StrJoin(answer.TakeBody(), "")));
    return 0;
  }
  for (size_t begin = 0; begin < events.size();) {
    const size_t end = events.find("\n\n", begin);
    CONTINUO_CHECK(end != std::string::npos && events.substr(begin, 6) == "data: ");
    CONTINUO_CHECK(nlohmann::json::accept(events.substr(begin + 6, end - begin - 6)));
    begin = end + 2;
  }
  return 0;
}

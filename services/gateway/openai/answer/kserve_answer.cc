// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/answer/kserve_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/kserve/call/answer_json.h"

namespace continuo::gateway::openai {

KserveAnswer::KserveAnswer(kserve::InferCall call, std::optional<kserve::BinaryOutputs> binary)
    : stream_(call.stream), binary_(std::move(binary)), answer_(std::move(call)) {}

void KserveAnswer::Add(int /*prompt*/, const v1::GenerateResponse& response, std::string* events) {
  if (!stream_) {
    Keep(response);
    return;
  }
  const std::optional<inference::ModelInferResponse> told = answer_.Add(response);
  if (!told.has_value()) return;
  const bool is_last = std::ranges::any_of(response.deltas(), [](const v1::Delta& delta) {
    return delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  });
  std::string event = absl::StrCat("data: ", kserve::GenerateJson(*told), "\n\n");
  if (is_last) {
    last_event_ = std::move(event);
  } else {
    events->append(event);
  }
}

void KserveAnswer::Keep(const v1::GenerateResponse& response) {
  if (response.has_accepted()) *whole_.mutable_accepted() = response.accepted();
  if (response.has_summary()) *whole_.mutable_summary() = response.summary();
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.index() >= uint32_t{kMaxChoices}) continue;  // was not requested
    while (whole_.deltas_size() <= static_cast<int>(delta.index())) {
      whole_.add_deltas()->set_index(static_cast<uint32_t>(whole_.deltas_size() - 1));
    }
    v1::Delta& kept = *whole_.mutable_deltas(static_cast<int>(delta.index()));
    kept.mutable_text()->append(delta.text());
    kept.mutable_token_ids()->MergeFrom(delta.token_ids());
    kept.set_finish_reason(delta.finish_reason());
    num_bytes_ += delta.text().size() + sizeof(uint32_t) * delta.token_ids_size();
  }
}

void KserveAnswer::AddEnd(std::string* events) { events->append(std::exchange(last_event_, {})); }

void KserveAnswer::AddError(const absl::Status& /*status*/, std::string_view error,
                            std::string* events) {
  absl::StrAppend(events, "data: ", std::string(error), "\n\n");
}

std::vector<std::string> KserveAnswer::TakeBody() {
  // InferAnswer tells every response of a call that is no stream.
  const inference::ModelInferResponse response = *answer_.Add(std::exchange(whole_, {}));
  num_bytes_ = 0;
  if (!binary_.has_value()) return {kserve::GenerateJson(response)};
  kserve::InferBody body = kserve::InferJson(response, *binary_);
  if (body.binary.empty()) return {std::move(body.json)};
  form_ = {.content_type = "application/octet-stream",
           .headers = {{"Inference-Header-Content-Length", absl::StrCat(body.json.size())}}};
  return {std::move(body.json), std::move(body.binary)};
}

}  // namespace continuo::gateway::openai

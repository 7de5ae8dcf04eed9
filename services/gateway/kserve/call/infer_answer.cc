// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/kserve/call/infer_tensor.h"

namespace continuo::gateway::kserve {
namespace {

// As /v1/completions names them; empty while the sequence goes on.
std::string FinishReasonOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return "";
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_TIME_LIMIT:
      return "length";
    default:
      return "stop";
  }
}

}  // namespace

InferAnswer::InferAnswer(InferCall call) : call_(std::move(call)), echo_(call_.echo) {}

inference::ModelInferResponse InferAnswer::Head(bool is_final) const {
  inference::ModelInferResponse response;
  response.set_model_name(model_);
  response.set_model_version(kVersion);
  response.set_id(call_.id);
  if (call_.stream) (*response.mutable_parameters())[kIsFinal].set_bool_param(is_final);
  return response;
}

void InferAnswer::AddTexts(const char* name, const std::vector<std::string>& texts,
                           inference::ModelInferResponse* response) const {
  auto* const output = response->add_outputs();
  output->set_name(name);
  output->set_datatype("BYTES");
  output->add_shape(static_cast<int64_t>(texts.size()));
  if (call_.is_raw) {
    std::string* const raw = response->add_raw_output_contents();
    for (const std::string& text : texts) AppendRawText(text, raw);
  } else {
    for (const std::string& text : texts) output->mutable_contents()->add_bytes_contents(text);
  }
}

void InferAnswer::AddNumber(const char* name, uint32_t number,
                            inference::ModelInferResponse* response) const {
  auto* const output = response->add_outputs();
  output->set_name(name);
  output->set_datatype("UINT32");
  output->add_shape(1);
  if (call_.is_raw) {
    AppendRawNumber(number, response->add_raw_output_contents());
  } else {
    output->mutable_contents()->add_uint_contents(number);
  }
}

std::optional<inference::ModelInferResponse> InferAnswer::Add(
    const v1::GenerateResponse& response) {
  if (!response.accepted().model().empty()) model_ = response.accepted().model();
  if (response.has_progress()) num_prompt_tokens_ = response.progress().prompt_tokens();
  if (response.has_summary()) num_prompt_tokens_ = response.summary().usage().prompt_tokens();
  std::vector<std::string> texts, reasons;
  uint32_t num_tokens = 0;
  bool tells = !call_.stream;
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.index() >= uint32_t{openai::kMaxChoices}) continue;  // was not requested
    if (texts.size() <= delta.index()) {
      texts.resize(delta.index() + 1);
      reasons.resize(delta.index() + 1);
    }
    texts[delta.index()].append(delta.text());
    reasons[delta.index()] = FinishReasonOf(delta.finish_reason());
    num_tokens += static_cast<uint32_t>(delta.token_ids_size());
    tells = tells || !delta.text().empty() || !reasons[delta.index()].empty() ||
            (call_.has_num_output_tokens && delta.token_ids_size() > 0);
  }
  if (!tells) return std::nullopt;
  for (std::string& text : texts) text.insert(0, echo_);
  echo_.clear();
  inference::ModelInferResponse told = Head(/*is_final=*/false);
  if (call_.has_text) AddTexts(kTextOutput, texts, &told);
  if (call_.has_finish_reason) AddTexts(kFinishReason, reasons, &told);
  if (call_.has_num_input_tokens) AddNumber(kNumInputTokens, num_prompt_tokens_, &told);
  if (call_.has_num_output_tokens) AddNumber(kNumOutputTokens, num_tokens, &told);
  return told;
}

std::optional<inference::ModelInferResponse> InferAnswer::End() const {
  if (!call_.stream || !call_.wants_final) return std::nullopt;
  return Head(/*is_final=*/true);
}

}  // namespace continuo::gateway::kserve

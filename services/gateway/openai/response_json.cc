// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/response_json.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string_view FinishReasonOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return "";
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_TIME_LIMIT:
      return "length";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    default:
      return "stop";
  }
}

OrderedJson FinishReasonJson(std::string_view reason) {
  return reason.empty() ? OrderedJson() : OrderedJson(reason);
}

OrderedJson ModelObject(const v1::Model& model, int64_t created) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "continuo"},
          {"max_model_len", model.max_context_tokens()}};
}

}  // namespace

Answer::Answer(AnswerForm form, std::string id, std::string model, int64_t created)
    : form_(std::move(form)),
      id_(absl::StrCat(is_chat() ? "chatcmpl-" : "cmpl-", id)),
      model_(std::move(model)),
      created_(created) {}

OrderedJson Answer::Head(std::string_view object) const {
  OrderedJson head = {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  head["system_fingerprint"] = fingerprint_.empty() ? OrderedJson() : OrderedJson(fingerprint_);
  return head;
}

OrderedJson Answer::Usage() const {
  return {{"prompt_tokens", usage_.prompt_tokens()},
          {"completion_tokens", usage_.completion_tokens()},
          {"total_tokens", uint64_t{usage_.prompt_tokens()} + usage_.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens()}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage_.reasoning_tokens()}}}};
}

void Answer::AddEvent(OrderedJson choices, std::string* events) const {
  OrderedJson event = Head(is_chat() ? "chat.completion.chunk" : "text_completion");
  event["choices"] = std::move(choices);
  if (form_.include_usage) event["usage"] = nullptr;
  absl::StrAppend(events, "data: ", Dump(event), "\n\n");
}

OrderedJson Answer::ChunkChoice(int index, const Choice& choice, const v1::Delta& delta,
                                OrderedJson logprobs) const {
  OrderedJson json = {{"index", index}};
  if (is_chat()) {
    OrderedJson what = OrderedJson::object();
    if (!delta.reasoning().empty()) what["reasoning_content"] = delta.reasoning();
    if (!delta.text().empty()) what["content"] = delta.text();
    json["delta"] = std::move(what);
    if (!logprobs.is_null()) logprobs = {{"content", std::move(logprobs)}, {"refusal", nullptr}};
  } else {
    json["text"] = delta.text();
  }
  json["logprobs"] = std::move(logprobs);
  json["finish_reason"] = FinishReasonJson(choice.finish_reason);
  return json;
}

void Answer::Begin(int index, Choice& choice, std::string* events) {
  if (choice.begun) return;
  choice.begun = true;
  const bool echoes = !form_.echo.empty();
  const std::string& echo = echoes ? form_.echo[index / form_.num_sequences] : id_;
  if (!form_.stream) {
    if (echoes) choice.text = echo;
    return;
  }
  if (is_chat()) {
    OrderedJson json = {{"index", index},
                        {"delta", {{"role", "assistant"}, {"content", ""}}},
                        {"logprobs", nullptr},
                        {"finish_reason", nullptr}};
    AddEvent(OrderedJson::array({std::move(json)}), events);
  } else if (echoes) {
    v1::Delta delta;
    delta.set_text(echo);
    AddEvent(OrderedJson::array({ChunkChoice(index, choice, delta, nullptr)}), events);
  }
}

void Answer::Add(int prompt, const v1::GenerateResponse& response, std::string* events) {
  if (response.has_accepted()) {
    const v1::Accepted& accepted = response.accepted();
    if (!accepted.model().empty()) model_ = accepted.model();
    if (!accepted.fingerprint().empty()) fingerprint_ = accepted.fingerprint();
    if (accepted.has_reference_time()) created_ = accepted.reference_time().seconds();
  }
  for (const v1::Delta& delta : response.deltas()) {
    // A worker that answers with more than was asked for is not let through.
    if (delta.index() >= static_cast<uint32_t>(form_.num_sequences)) continue;
    const int index = prompt * form_.num_sequences + static_cast<int>(delta.index());
    if (choices_.size() <= static_cast<size_t>(index)) choices_.resize(index + 1);
    Choice& choice = choices_[index];
    Begin(index, choice, events);
    choice.finish_reason = FinishReasonOf(delta.finish_reason());
    OrderedJson* const kept = &choice.logprobs;
    OrderedJson fresh;
    OrderedJson* const logprobs = form_.stream ? &fresh : kept;
    if (form_.logprobs) {
      for (const v1::TokenLogprob& logprob : delta.logprobs()) {
        if (is_chat()) {
          logprobs->push_back(ChatLogprob(logprob));
        } else {
          choice.completion_logprobs.Add(logprob, logprobs);
        }
      }
    }
    if (form_.stream) {
      // Tokens whose text is held back have nothing to show.
      if (delta.text().empty() && delta.reasoning().empty() && fresh.is_null() &&
          choice.finish_reason.empty()) {
        continue;
      }
      AddEvent(OrderedJson::array({ChunkChoice(index, choice, delta, std::move(fresh))}), events);
    } else {
      choice.text += delta.text();
      choice.reasoning += delta.reasoning();
      // Of what logprobs take in memory, about half.
      num_bytes_ += delta.text().size() + delta.reasoning().size();
      for (const v1::TokenLogprob& logprob : delta.logprobs()) {
        num_bytes_ += 64 * (1 + logprob.alternatives_size());
      }
    }
  }
  if (response.has_summary()) {
    const v1::Usage& usage = response.summary().usage();
    usage_.set_prompt_tokens(usage_.prompt_tokens() + usage.prompt_tokens());
    usage_.set_cached_prompt_tokens(usage_.cached_prompt_tokens() + usage.cached_prompt_tokens());
    usage_.set_completion_tokens(usage_.completion_tokens() + usage.completion_tokens());
    usage_.set_reasoning_tokens(usage_.reasoning_tokens() + usage.reasoning_tokens());
  }
}

void Answer::AddEnd(std::string* events) const {
  if (form_.include_usage) {
    OrderedJson event = Head(is_chat() ? "chat.completion.chunk" : "text_completion");
    event["choices"] = OrderedJson::array();
    event["usage"] = Usage();
    absl::StrAppend(events, "data: ", Dump(event), "\n\n");
  }
  events->append("data: [DONE]\n\n");
}

std::string Answer::Body() const {
  OrderedJson body = Head(is_chat() ? "chat.completion" : "text_completion");
  OrderedJson choices = OrderedJson::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    OrderedJson json = {{"index", i}};
    OrderedJson logprobs = choice.logprobs;
    if (is_chat()) {
      OrderedJson message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      json["message"] = std::move(message);
      if (!logprobs.is_null()) logprobs = {{"content", std::move(logprobs)}, {"refusal", nullptr}};
    } else {
      json["text"] = choice.text;
    }
    json["logprobs"] = std::move(logprobs);
    json["finish_reason"] = FinishReasonJson(choice.finish_reason);
    choices.push_back(std::move(json));
  }
  body["choices"] = std::move(choices);
  body["usage"] = Usage();
  return Dump(body);
}

std::string ErrorEvent(std::string_view error_json) {
  return std::string("data: ").append(error_json).append("\n\n");
}

std::string ModelsJson(const std::vector<v1::Model>& models, int64_t created) {
  OrderedJson data = OrderedJson::array();
  for (const v1::Model& model : models) data.push_back(ModelObject(model, created));
  return Dump({{"object", "list"}, {"data", std::move(data)}});
}

std::string ModelJson(const v1::Model& model, int64_t created) {
  return Dump(ModelObject(model, created));
}

}  // namespace continuo::gateway::openai

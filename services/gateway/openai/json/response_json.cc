// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/response_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/json_text.h"

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

std::string FinishReasonJson(std::string_view reason) {
  return reason.empty() ? "null" : absl::StrCat("\"", std::string(reason), "\"");
}

void AppendMember(std::string_view name, std::string_view text, std::string* json) {
  json->append(R"(,")").append(name).append(R"(":)");
  AppendString(text, json);
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

size_t Answer::Choice::num_bytes() const {
  return sizeof(Choice) + text.capacity() + reasoning.capacity() +
         (logprobs == nullptr ? 0 : logprobs->num_bytes());
}

std::string Answer::Head(std::string_view object) const {
  OrderedJson head = {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  head["system_fingerprint"] = fingerprint_.empty() ? OrderedJson() : OrderedJson(fingerprint_);
  std::string json = Dump(head);
  json.pop_back();
  return json.append(R"(,"choices":)");
}

OrderedJson Answer::Usage() const {
  return {{"prompt_tokens", usage_.prompt_tokens()},
          {"completion_tokens", usage_.completion_tokens()},
          {"total_tokens", uint64_t{usage_.prompt_tokens()} + usage_.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens()}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage_.reasoning_tokens()}}}};
}

void Answer::AddEvent(std::string_view choice, std::string* events) const {
  absl::StrAppend(events, "data: ", Head(is_chat() ? "chat.completion.chunk" : "text_completion"));
  events->append("[").append(choice).append("]");
  if (form_.include_usage) events->append(R"(,"usage":null)");
  events->append("}\n\n");
}

std::string Answer::ChunkChoice(int index, const Choice& choice, const v1::Delta& delta,
                                std::string_view logprobs) const {
  std::string json = absl::StrCat(R"({"index":)", index);
  if (is_chat()) {
    OrderedJson what = OrderedJson::object();
    if (!delta.reasoning().empty()) what["reasoning_content"] = delta.reasoning();
    if (!delta.text().empty()) what["content"] = delta.text();
    absl::StrAppend(&json, R"(,"delta":)", Dump(what));
  } else {
    AppendMember("text", delta.text(), &json);
  }
  json.append(R"(,"logprobs":)").append(logprobs);
  return absl::StrCat(json, R"(,"finish_reason":)", FinishReasonJson(choice.finish_reason), "}");
}

void Answer::AddDeltaEvents(int index, Choice& choice, const v1::Delta& delta,
                            std::string_view logprobs, std::string* events) const {
  // The event with the finish reason has nothing else: some clients do not look for text there.
  const std::string_view reason = std::exchange(choice.finish_reason, {});
  if (!delta.text().empty() || !delta.reasoning().empty() || logprobs != "null") {
    AddEvent(ChunkChoice(index, choice, delta, logprobs), events);
  }
  choice.finish_reason = reason;
  if (!reason.empty()) AddEvent(ChunkChoice(index, choice, v1::Delta(), "null"), events);
}

Answer::Choice& Answer::Begin(int index, std::string* events) {
  if (choices_.size() <= static_cast<size_t>(index)) choices_.resize(index + 1);
  Choice& choice = choices_[index];
  if (std::exchange(choice.begun, true)) return choice;
  if (form_.logprobs && is_chat()) choice.logprobs = std::make_unique<ChatLogprobs>();
  if (form_.logprobs && !is_chat()) choice.logprobs = std::make_unique<CompletionLogprobs>();
  if (form_.stream && is_chat()) {
    AddEvent(absl::StrCat(R"({"index":)", index,
                          R"(,"delta":{"role":"assistant","content":""},"logprobs":null,)",
                          R"("finish_reason":null})"),
             events);
  }
  const std::string_view echo =
      form_.echo ? form_.echo_texts[index / form_.num_sequences] : std::string_view();
  if (!form_.stream) {
    AppendCharacters(echo, &choice.text);
    num_bytes_ += choice.num_bytes();
  } else if (!echo.empty()) {
    v1::Delta delta;
    delta.set_text(std::string(echo));
    AddEvent(ChunkChoice(index, choice, delta, "null"), events);
  }
  return choice;
}

void Answer::AddEcho(int prompt, const v1::GenerateResponse& response, std::string* events) {
  if (prompts_.size() <= static_cast<size_t>(prompt)) prompts_.resize(prompt + 1);
  Prompt& state = prompts_[prompt];
  v1::Delta delta;
  if (form_.echo_texts[prompt].empty()) {
    for (const v1::PromptToken& token : response.prompt_tokens()) {
      state.text.Push(token.token(), delta.mutable_text());
    }
    if (response.deltas_size() > 0) state.text.Flush(delta.mutable_text());
  }
  const bool first = !state.has_first && response.prompt_tokens_size() > 0;
  state.has_first = state.has_first || first;
  const bool scores = form_.logprobs && (first || response.prompt_logprobs_size() > 0);
  if (delta.text().empty() && !scores) return;
  for (int i = 0; i < form_.num_sequences; ++i) {
    const int index = prompt * form_.num_sequences + i;
    Choice& choice = Begin(index, events);
    const size_t bytes_before = choice.num_bytes();
    if (choice.logprobs != nullptr) {
      if (first) choice.logprobs->AddFirst(response.prompt_tokens(0).token());
      for (const v1::TokenLogprob& score : response.prompt_logprobs()) choice.logprobs->Add(score);
    }
    if (form_.stream) {
      const std::string logprobs = choice.logprobs == nullptr ? "null" : choice.logprobs->Take();
      AddEvent(ChunkChoice(index, choice, delta, logprobs), events);
    } else {
      AppendCharacters(delta.text(), &choice.text);
      num_bytes_ += choice.num_bytes() - bytes_before;
    }
  }
}

void Answer::AddDelta(int prompt, const v1::Delta& delta, std::string* events) {
  const int index = prompt * form_.num_sequences + static_cast<int>(delta.index());
  Choice& choice = Begin(index, events);
  const size_t bytes_before = choice.num_bytes();
  choice.finish_reason = FinishReasonOf(delta.finish_reason());
  if (choice.logprobs != nullptr) {
    for (const v1::TokenLogprob& logprob : delta.logprobs()) choice.logprobs->Add(logprob);
  }
  if (form_.stream) {
    // Tokens whose text is held back make no event.
    if (delta.text().empty() && delta.reasoning().empty() && choice.finish_reason.empty() &&
        (choice.logprobs == nullptr || delta.logprobs().empty())) {
      return;
    }
    const std::string logprobs = choice.logprobs == nullptr ? "null" : choice.logprobs->Take();
    AddDeltaEvents(index, choice, delta, logprobs, events);
  } else {
    AppendCharacters(delta.text(), &choice.text);
    AppendCharacters(delta.reasoning(), &choice.reasoning);
    num_bytes_ += choice.num_bytes() - bytes_before;
  }
}

void Answer::Add(int prompt, const v1::GenerateResponse& response, std::string* events) {
  if (response.has_accepted()) {
    const v1::Accepted& accepted = response.accepted();
    if (!accepted.model().empty()) model_ = accepted.model();
    if (!accepted.fingerprint().empty()) fingerprint_ = accepted.fingerprint();
    if (accepted.has_reference_time()) created_ = accepted.reference_time().seconds();
  }
  if (form_.echo) AddEcho(prompt, response, events);
  for (const v1::Delta& delta : response.deltas()) {
    // Sequences that were not requested are dropped.
    if (delta.index() < static_cast<uint32_t>(form_.num_sequences)) AddDelta(prompt, delta, events);
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
    absl::StrAppend(events, "data: ", Head(is_chat() ? "chat.completion.chunk" : "text_completion"),
                    R"([],"usage":)", Dump(Usage()), "}\n\n");
  }
  events->append("data: [DONE]\n\n");
}

std::vector<std::string> Answer::TakeBody() {
  std::vector<std::string> pieces;
  std::string json = Head(is_chat() ? "chat.completion" : "text_completion").append("[");
  const auto add = [&](std::string piece) {
    pieces.push_back(std::exchange(json, {}));
    pieces.push_back(std::move(piece));
  };
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    absl::StrAppend(&json, i == 0 ? "" : ",", R"({"index":)", i,
                    is_chat() ? R"(,"message":{"role":"assistant","content":")" : R"(,"text":")");
    add(std::move(choice.text));
    json.append("\"");
    if (is_chat()) {
      json.append(R"(,"refusal":null)");
      if (!choice.reasoning.empty()) {
        json.append(R"(,"reasoning_content":")");
        add(std::move(choice.reasoning));
        json.append("\"");
      }
      json.append("}");
    }
    json.append(R"(,"logprobs":)");
    add(choice.logprobs == nullptr ? "null" : choice.logprobs->Take());
    absl::StrAppend(&json, R"(,"finish_reason":)", FinishReasonJson(choice.finish_reason), "}");
  }
  absl::StrAppend(&json, R"(],"usage":)", Dump(Usage()), "}");
  pieces.push_back(std::move(json));
  return pieces;
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

// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/answer/completions_answer.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/json_text.h"

namespace continuo::gateway::openai {
namespace {

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

// Appends a piece of a call as JSON. The first one, which has an id, names the function.
void AppendCallPiece(const v1::ToolCall& call, std::string* json) {
  absl::StrAppend(json, R"({"index":)", call.index());
  const bool begins = !call.id().empty();
  if (begins) {
    AppendMember("id", call.id(), json);
    json->append(R"(,"type":"function")");
  }
  json->append(R"(,"function":{)");
  if (begins) {
    json->append(R"("name":)");
    AppendString(call.name(), json);
    json->push_back(',');
  }
  json->append(R"("arguments":)");
  AppendString(call.arguments(), json);
  json->append("}}");
}

// Appends the members of a chat's `delta`.
void AppendDeltaMembers(const v1::Delta& delta, std::string* json) {
  const size_t begin = json->size();
  // Some clients read one name, some the other.
  if (!delta.reasoning().empty()) {
    AppendMember("reasoning_content", delta.reasoning(), json);
    AppendMember("reasoning", delta.reasoning(), json);
  }
  if (!delta.text().empty()) AppendMember("content", delta.text(), json);
  for (int i = 0; i < delta.tool_calls_size(); ++i) {
    json->append(i == 0 ? R"(,"tool_calls":[)" : ",");
    AppendCallPiece(delta.tool_calls(i), json);
  }
  if (delta.tool_calls_size() > 0) json->push_back(']');
  if (json->size() > begin) json->erase(begin, 1);  // the first comma
}

template <typename Ids>
void AppendIds(const Ids& ids, std::string* json) {
  for (const uint32_t id : ids) absl::StrAppend(json, json->empty() ? "" : ",", id);
}

// `entry` is a TokenLogprob or one of its alternatives.
template <typename Entry>
void AppendPromptEntry(const Entry& entry, int rank, std::string* json) {
  absl::StrAppend(json, R"(")", entry.token_id(), R"(":{"logprob":)");
  AppendNumber(entry.logprob(), json);
  absl::StrAppend(json, R"(,"rank":)", rank > 0 ? absl::StrCat(rank) : "null");
  const bool special = !entry.special_token().empty();
  AppendMember("decoded_token", special ? entry.special_token() : entry.token(), json);
  json->push_back('}');
}

// Writes vLLM's form: by id, the prompt's own token and the most likely ones, ranked from 1. The
// rank of a token that is none of these is not known.
void AppendPromptLogprob(const v1::TokenLogprob& logprob, std::string* json) {
  int own_rank = 0;
  for (int i = 0; i < logprob.alternatives_size(); ++i) {
    if (logprob.alternatives(i).token_id() == logprob.token_id()) own_rank = i + 1;
  }
  json->push_back('{');
  AppendPromptEntry(logprob, own_rank, json);
  for (int i = 0; i < logprob.alternatives_size(); ++i) {
    if (i + 1 == own_rank) continue;
    json->push_back(',');
    AppendPromptEntry(logprob.alternatives(i), i + 1, json);
  }
  json->push_back('}');
}

// Takes the special tokens at the end of a delta that has other tokens before them, and its finish
// reason. Nothing where there are none.
std::optional<v1::Delta> TakeEnd(v1::Delta* delta) {
  const int size = delta->logprobs_size();
  int begin = size;
  while (begin > 0 && !delta->logprobs(begin - 1).special_token().empty()) --begin;
  if (begin == 0 || begin == size) return std::nullopt;
  v1::Delta end;
  end.set_index(delta->index());
  end.set_finish_reason(delta->finish_reason());
  delta->clear_finish_reason();
  if (delta->token_ids_size() == size) {
    end.mutable_token_ids()->Add(delta->token_ids().begin() + begin, delta->token_ids().end());
    delta->mutable_token_ids()->Truncate(begin);
  }
  for (int i = begin; i < size; ++i) end.add_logprobs()->Swap(delta->mutable_logprobs(i));
  delta->mutable_logprobs()->DeleteSubrange(begin, size - begin);
  return end;
}

}  // namespace

CompletionsAnswer::CompletionsAnswer(AnswerForm form, std::string id, std::string model,
                                     int64_t created)
    : form_(std::move(form)),
      id_(absl::StrCat(is_chat() ? "chatcmpl-" : "cmpl-", id)),
      model_(std::move(model)),
      created_(created) {
  SetChunkHead();
}

size_t CompletionsAnswer::Choice::num_bytes() const {
  size_t of_calls = calls.capacity() * sizeof(std::string);
  for (const std::string& call : calls) of_calls += call.capacity();
  return of_calls + sizeof(Choice) + text.capacity() + reasoning.capacity() + token_ids.capacity() +
         (logprobs == nullptr ? 0 : logprobs->num_bytes());
}

void CompletionsAnswer::SetChunkHead() {
  if (form_.stream) chunk_head_ = Head(is_chat() ? "chat.completion.chunk" : "text_completion");
}

std::string CompletionsAnswer::Head(std::string_view object) const {
  OrderedJson head = {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  head["system_fingerprint"] = fingerprint_.empty() ? OrderedJson() : OrderedJson(fingerprint_);
  std::string json = Dump(head);
  json.pop_back();
  return json.append(R"(,"choices":)");
}

OrderedJson CompletionsAnswer::Usage() const {
  return {{"prompt_tokens", usage_.prompt_tokens()},
          {"completion_tokens", usage_.completion_tokens()},
          {"total_tokens", uint64_t{usage_.prompt_tokens()} + usage_.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens()}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage_.reasoning_tokens()}}}};
}

OrderedJson CompletionsAnswer::UsageSoFar() const {
  return {{"prompt_tokens", num_prompt_ids_},
          {"completion_tokens", num_answer_ids_},
          {"total_tokens", num_prompt_ids_ + num_answer_ids_}};
}

std::string CompletionsAnswer::PromptMembers(int prompt) const {
  std::string json;
  static const Prompt kNothing;
  const auto place = static_cast<size_t>(prompt);
  const Prompt& told = place < prompts_.size() ? prompts_[place] : kNothing;
  if (form_.token_ids) absl::StrAppend(&json, R"(,"prompt_token_ids":[)", told.token_ids, "]");
  // The first token has no log-probability.
  if (form_.prompt_logprobs) {
    absl::StrAppend(&json, R"(,"prompt_logprobs":[null)", told.logprobs, "]");
  }
  return json;
}

void CompletionsAnswer::KeepPrompt(int prompt, const v1::GenerateResponse& response) {
  num_prompt_ids_ += static_cast<uint64_t>(response.prompt_tokens_size());
  if (!form_.token_ids && !form_.prompt_logprobs) return;
  if (prompts_.size() <= static_cast<size_t>(prompt)) prompts_.resize(prompt + 1);
  Prompt& told = prompts_[prompt];
  const size_t bytes_before = told.token_ids.capacity() + told.logprobs.capacity();
  if (form_.token_ids) {
    for (const v1::PromptToken& token : response.prompt_tokens()) {
      absl::StrAppend(&told.token_ids, told.token_ids.empty() ? "" : ",", token.token_id());
    }
  }
  if (form_.prompt_logprobs) {
    for (const v1::TokenLogprob& logprob : response.prompt_logprobs()) {
      told.logprobs.push_back(',');
      AppendPromptLogprob(logprob, &told.logprobs);
    }
  }
  num_bytes_ += told.token_ids.capacity() + told.logprobs.capacity() - bytes_before;
}

void CompletionsAnswer::AddEvent(std::string_view choice, std::string* events,
                                 std::string_view more) const {
  events->append("data: ").append(chunk_head_).append("[").append(choice).append("]").append(more);
  if (form_.continuous_usage) {
    absl::StrAppend(events, R"(,"usage":)", Dump(UsageSoFar()));
  } else if (form_.include_usage) {
    events->append(R"(,"usage":null)");
  }
  events->append("}\n\n");
}

std::string CompletionsAnswer::ChunkChoice(int index, const Choice& choice, const v1::Delta& delta,
                                           std::string_view logprobs) const {
  std::string json = absl::StrCat(R"({"index":)", index);
  if (is_chat()) {
    json.append(R"(,"delta":{)");
    AppendDeltaMembers(delta, &json);
    json.push_back('}');
  } else {
    AppendMember("text", delta.text(), &json);
  }
  json.append(R"(,"logprobs":)").append(logprobs);
  if (form_.token_ids) {
    json.append(R"(,"token_ids":[)");
    std::string ids;
    AppendIds(delta.token_ids(), &ids);
    json.append(ids).append("]");
  }
  return absl::StrCat(json, R"(,"finish_reason":)", FinishReasonJson(choice.finish_reason), "}");
}

void CompletionsAnswer::AddDeltaEvents(int index, Choice& choice, const v1::Delta& delta,
                                       std::string_view logprobs, std::string* events) const {
  // The event with the finish reason has nothing else: some clients do not look for text there.
  const std::string_view reason = std::exchange(choice.finish_reason, {});
  const bool has_ids = form_.token_ids && !delta.token_ids().empty();
  if (!delta.text().empty() || !delta.reasoning().empty() || !delta.tool_calls().empty() ||
      logprobs != "null" || has_ids) {
    AddEvent(ChunkChoice(index, choice, delta, logprobs), events);
  }
  choice.finish_reason = reason;
  if (!reason.empty()) AddEvent(ChunkChoice(index, choice, v1::Delta(), "null"), events);
}

CompletionsAnswer::Choice& CompletionsAnswer::Begin(int index, std::string* events) {
  if (choices_.size() <= static_cast<size_t>(index)) choices_.resize(index + 1);
  Choice& choice = choices_[index];
  if (std::exchange(choice.begun, true)) return choice;
  if (form_.logprobs && is_chat()) choice.logprobs = std::make_unique<ChatLogprobs>();
  if (form_.stream && is_chat()) {
    AddEvent(absl::StrCat(R"({"index":)", index,
                          R"(,"delta":{"role":"assistant","content":""},"logprobs":null,)",
                          R"("finish_reason":null})"),
             events, std::exchange(told_prompt_ids_, true) ? "" : PromptMembers(0));
  }
  const std::string_view echo =
      form_.echo ? form_.echo_texts[index / form_.num_sequences] : std::string_view();
  if (form_.logprobs && !is_chat()) choice.logprobs = std::make_unique<CompletionLogprobs>(echo);
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

void CompletionsAnswer::AddEcho(int prompt, const v1::GenerateResponse& response,
                                std::string* events) {
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
      if (first) choice.logprobs->AddFirst(response.prompt_tokens(0));
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

void CompletionsAnswer::AddDeltas(int prompt, const v1::Delta& delta, std::string* events) {
  if (!form_.stream || !form_.logprobs || delta.text().empty()) {
    AddDelta(prompt, delta, events);
    return;
  }
  // Some clients put the text together from the tokens of an event with content, so those without a
  // part in the text have an event of their own, however tokens come together.
  v1::Delta rest = delta;
  const std::optional<v1::Delta> end = TakeEnd(&rest);
  AddDelta(prompt, rest, events);
  if (end.has_value()) AddDelta(prompt, *end, events);
}

void CompletionsAnswer::AddDelta(int prompt, const v1::Delta& delta, std::string* events) {
  const int index = prompt * form_.num_sequences + static_cast<int>(delta.index());
  Choice& choice = Begin(index, events);
  num_answer_ids_ += static_cast<uint64_t>(delta.token_ids_size());
  if (!std::exchange(choice.has_delta, true) && form_.stream && form_.token_ids && !is_chat()) {
    // The prompt's ids are all known now; an echo may have come in pieces.
    std::string json = ChunkChoice(index, choice, v1::Delta(), "null");
    json.pop_back();
    AddEvent(json.append(PromptMembers(prompt)).append("}"), events);
  }
  const size_t bytes_before = choice.num_bytes();
  choice.finish_reason = FinishReasonOf(delta.finish_reason());
  if (choice.logprobs != nullptr) {
    for (const v1::TokenLogprob& logprob : delta.logprobs()) choice.logprobs->Add(logprob);
  }
  if (form_.stream) {
    // Tokens whose text is held back make no event.
    if (delta.text().empty() && delta.reasoning().empty() && delta.tool_calls().empty() &&
        choice.finish_reason.empty() && (choice.logprobs == nullptr || delta.logprobs().empty()) &&
        (!form_.token_ids || delta.token_ids().empty())) {
      return;
    }
    const std::string logprobs = choice.logprobs == nullptr ? "null" : choice.logprobs->Take();
    AddDeltaEvents(index, choice, delta, logprobs, events);
  } else {
    AppendCharacters(delta.text(), &choice.text);
    AppendCharacters(delta.reasoning(), &choice.reasoning);
    for (const v1::ToolCall& call : delta.tool_calls()) {
      if (!call.id().empty()) {
        std::string& json = choice.calls.emplace_back(R"({"id":)");
        AppendString(call.id(), &json);
        json.append(R"(,"type":"function","function":{"name":)");
        AppendString(call.name(), &json);
        json.append(R"(,"arguments":")");
      }
      if (!choice.calls.empty()) AppendCharacters(call.arguments(), &choice.calls.back());
    }
    if (form_.token_ids) AppendIds(delta.token_ids(), &choice.token_ids);
    num_bytes_ += choice.num_bytes() - bytes_before;
  }
}

void CompletionsAnswer::Add(int prompt, const v1::GenerateResponse& response, std::string* events) {
  if (response.has_accepted()) {
    const v1::Accepted& accepted = response.accepted();
    if (!accepted.model().empty()) model_ = accepted.model();
    if (!accepted.fingerprint().empty()) fingerprint_ = accepted.fingerprint();
    if (accepted.has_reference_time()) created_ = accepted.reference_time().seconds();
    SetChunkHead();
  }
  KeepPrompt(prompt, response);
  if (form_.echo) AddEcho(prompt, response, events);
  for (const v1::Delta& delta : response.deltas()) {
    // Sequences that were not requested are dropped.
    if (delta.index() >= static_cast<uint32_t>(form_.num_sequences)) continue;
    AddDeltas(prompt, delta, events);
  }
  if (response.has_summary()) {
    const v1::Usage& usage = response.summary().usage();
    usage_.set_prompt_tokens(usage_.prompt_tokens() + usage.prompt_tokens());
    usage_.set_cached_prompt_tokens(usage_.cached_prompt_tokens() + usage.cached_prompt_tokens());
    usage_.set_completion_tokens(usage_.completion_tokens() + usage.completion_tokens());
    usage_.set_reasoning_tokens(usage_.reasoning_tokens() + usage.reasoning_tokens());
  }
}

void CompletionsAnswer::AddError(const absl::Status&, std::string_view error, std::string* events) {
  events->append("data: ").append(error).append("\n\n");
}

void CompletionsAnswer::AddEnd(std::string* events) {
  if (form_.include_usage) {
    absl::StrAppend(events, "data: ", chunk_head_, R"([],"usage":)", Dump(Usage()), "}\n\n");
  }
  events->append("data: [DONE]\n\n");
}

std::vector<std::string> CompletionsAnswer::TakeBody() {
  std::vector<std::string> pieces;
  std::string json = Head(is_chat() ? "chat.completion" : "text_completion").append("[");
  const auto add = [&](std::string piece) {
    pieces.push_back(std::exchange(json, {}));
    pieces.push_back(std::move(piece));
  };
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    absl::StrAppend(&json, i == 0 ? "" : ",", R"({"index":)", i,
                    is_chat() ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)");
    if (choice.text.empty() && !choice.calls.empty()) {
      json.append("null");
    } else {
      json.append("\"");
      add(std::move(choice.text));
      json.append("\"");
    }
    if (is_chat()) {
      json.append(R"(,"refusal":null)");
      if (!choice.reasoning.empty()) {
        json.append(R"(,"reasoning_content":")");
        add(choice.reasoning);
        json.append(R"(","reasoning":")");
        add(std::move(choice.reasoning));
        json.append("\"");
      }
      for (size_t k = 0; k < choice.calls.size(); ++k) {
        json.append(k == 0 ? R"(,"tool_calls":[)" : ",");
        add(std::move(choice.calls[k]));
        json.append("\"}}");
      }
      json.append(choice.calls.empty() ? "}" : "]}");
    }
    json.append(R"(,"logprobs":)");
    add(choice.logprobs == nullptr ? "null" : choice.logprobs->Take());
    absl::StrAppend(&json, R"(,"finish_reason":)", FinishReasonJson(choice.finish_reason));
    if (form_.token_ids) {
      json.append(R"(,"token_ids":[)");
      add(std::move(choice.token_ids));
      json.append("]");
    }
    // Each prompt of completions has choices of its own.
    if (!is_chat()) json.append(PromptMembers(static_cast<int>(i) / form_.num_sequences));
    json.append("}");
  }
  absl::StrAppend(&json, R"(],"usage":)", Dump(Usage()), is_chat() ? PromptMembers(0) : "", "}");
  pieces.push_back(std::move(json));
  return pieces;
}

}  // namespace continuo::gateway::openai

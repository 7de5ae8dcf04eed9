// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/answer_sequence.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::server {
namespace {

bool Contains(const std::vector<int32_t>& ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

}  // namespace

bool StopRules::EndsSequence(int32_t token) const {
  return Contains(eos_ids, token) || Contains(stop_ids, token);
}

std::string CallId(std::string_view request_id, int index, int number) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::string key = absl::StrCat(index, ":", number, ":", std::string(request_id));
  uint64_t hash = XXH3_64bits(key.data(), key.size());
  std::string id;
  for (int i = 0; i < 9; ++i) {
    id += kLetters[hash % kLetters.size()];
    hash /= kLetters.size();
  }
  return id;
}

DeltaPlace LastPlace(bool has_reasoning, bool has_text, bool has_calls) {
  if (has_calls) return DeltaPlace::kCalls;
  if (has_text) return DeltaPlace::kText;
  return has_reasoning ? DeltaPlace::kReasoning : DeltaPlace::kOpenCall;
}

bool MayFollow(DeltaPlace next, DeltaPlace last) {
  // A piece without an id goes on with the call before it, of the same Delta, too.
  if (next == DeltaPlace::kOpenCall) return last == next || last == DeltaPlace::kCalls;
  return next >= last;
}

DeltaPlace AnswerSequence::Said::Part::last_place() const {
  return LastPlace(!reasoning.empty(), !text.empty(),
                   !tool_calls.empty() && !tool_calls.back().id().empty());
}

AnswerSequence::Said::Part& AnswerSequence::Said::For(DeltaPlace place) {
  if (parts_.empty() || !MayFollow(place, parts_.back().last_place())) parts_.emplace_back();
  return parts_.back();
}

void AnswerSequence::Said::AddReasoning(std::string_view bytes) {
  if (!bytes.empty()) For(DeltaPlace::kReasoning).reasoning += bytes;
}

void AnswerSequence::Said::AddText(std::string_view bytes) {
  if (!bytes.empty()) For(DeltaPlace::kText).text += bytes;
}

void AnswerSequence::Said::BeginCall(v1::ToolCall call) {
  For(DeltaPlace::kCalls).tool_calls.push_back(std::move(call));
}

void AnswerSequence::Said::AddArguments(uint32_t index, std::string_view bytes) {
  if (bytes.empty()) return;
  std::vector<v1::ToolCall>& calls = For(DeltaPlace::kOpenCall).tool_calls;
  if (calls.empty()) calls.emplace_back().set_index(index);
  calls.back().mutable_arguments()->append(bytes);
}

void AnswerSequence::Said::Append(const Said& other) {
  for (const Part& part : other.parts_) {
    const bool goes_on = !part.tool_calls.empty() && part.tool_calls.front().id().empty();
    if (goes_on) AddArguments(part.tool_calls.front().index(), part.tool_calls.front().arguments());
    AddReasoning(part.reasoning);
    AddText(part.text);
    for (size_t i = goes_on ? 1 : 0; i < part.tool_calls.size(); ++i) BeginCall(part.tool_calls[i]);
  }
}

size_t AnswerSequence::Said::num_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.text.size() + part.reasoning.size();
    for (const v1::ToolCall& call : part.tool_calls) bytes += call.ByteSizeLong() + 8;
  }
  return bytes;
}

AnswerSequence::AnswerSequence(const ServedModel* model, const StopRules* rules,
                               const AnswerFormat* format, int index)
    : model_(model),
      rules_(rules),
      format_(format),
      index_(index),
      detokenizer_(model->text, rules->strings, rules->include_stop,
                   /*tell_special=*/format != nullptr && format->response_template != nullptr) {
  if (format == nullptr || format->response_template == nullptr) return;
  parser_.emplace(format->response_template,
                  text::ResponseParser::Options{.calls = format->calls,
                                                .thoughts_first = format->thoughts_first,
                                                .types = &format->types});
  text::ResponseEvents events;
  parser_->Begin(format->prompt_end, &events);
}

AnswerSequence::Output AnswerSequence::Push(int32_t token, bool stops_active) {
  CONTINUO_CHECK(!finished_);
  ++num_tokens_;
  if (parser_.has_value() && parser_->in_reasoning()) ++num_reasoning_tokens_;
  const bool may_end = stops_active;
  const bool ids_end = stops_active && (rules_->constrained || num_tokens_ > rules_->min_tokens);
  stops_active = stops_active && num_tokens_ > rules_->min_tokens;
  if (ids_end && rules_->EndsSequence(token)) {
    Said said;
    if (rules_->include_stop && Contains(rules_->stop_ids, token)) {
      const text::Detokenizer::Piece piece = detokenizer_.Push(token, /*stops_active=*/false);
      TakeFirst(piece, piece.text.size(), &said);
    }
    Output output = Ended(v1::FINISH_REASON_STOP, token);
    said.Append(output);
    static_cast<Said&>(output) = std::move(said);
    if (!Contains(rules_->eos_ids, token)) output.matched_token_id = token;
    return output;
  }
  const text::Detokenizer::Piece piece = detokenizer_.Push(token, stops_active);
  Output output;
  const size_t delivered = piece.text.size() - piece.num_held;
  TakeFirst(piece, delivered, &output);
  if (has_only_call_ && may_end) {
    finished_ = true;
    output.finish = has_whole_call_ ? v1::FINISH_REASON_TOOL_CALLS : v1::FINISH_REASON_STOP;
    return output;
  }
  if (piece.matched_stop < 0) return output;
  finished_ = true;
  output.matched_string = piece.matched_stop;
  TakeRest(piece, delivered, &output.held);
  if (parser_.has_value()) {
    text::ResponseEvents events;
    parser_->Finish(&events);
    Tell(events, &output.held);
  }
  output.Append(output.held);
  output.finish = has_whole_call_ ? v1::FINISH_REASON_TOOL_CALLS : v1::FINISH_REASON_STOP;
  return output;
}

AnswerSequence::Output AnswerSequence::End(v1::FinishReason why) { return Ended(why, -1); }

AnswerSequence::Output AnswerSequence::Ended(v1::FinishReason why, int32_t last_token) {
  CONTINUO_CHECK(!finished_);
  finished_ = true;
  Output output;
  text::Detokenizer::Piece piece;
  piece.text = detokenizer_.Flush(&piece.specials);
  TakeRest(piece, 0, &output.held);
  if (parser_.has_value()) {
    text::ResponseEvents events;
    // The end of a sequence may be the end of a call.
    if (model_->text->IsSpecial(last_token)) {
      parser_->PushSpecial(model_->text->TokenBytesKeepSpecial(last_token), &events);
    }
    parser_->Finish(&events);
    Tell(events, &output.held);
  }
  output.Append(output.held);
  const bool called = why == v1::FINISH_REASON_STOP && has_whole_call_;
  output.finish = called ? v1::FINISH_REASON_TOOL_CALLS : why;
  return output;
}

void AnswerSequence::MarkFinished(const std::vector<int32_t>& tokens) {
  // They are counted. An end before the last one is of another worker's rules.
  if (parser_.has_value()) {
    for (const int32_t token : tokens) Push(token, /*stops_active=*/false);
  }
  finished_ = true;
}

// Takes the first `size` bytes of a piece and the special tokens up to there.
void AnswerSequence::TakeFirst(const text::Detokenizer::Piece& piece, size_t size, Said* said) {
  const auto end = std::find_if(piece.specials.begin(), piece.specials.end(),
                                [size](const auto& special) { return special.begin > size; });
  Take(std::string_view(piece.text).substr(0, size), 0, {piece.specials.begin(), end}, said);
}

// Takes what TakeFirst(piece, begin) leaves; all of a piece that was flushed, where `begin` is 0.
void AnswerSequence::TakeRest(const text::Detokenizer::Piece& piece, size_t begin, Said* said) {
  const auto first = std::find_if(
      piece.specials.begin(), piece.specials.end(),
      [&](const auto& special) { return special.begin > begin || piece.matched_stop < 0; });
  Take(std::string_view(piece.text).substr(begin), begin, {first, piece.specials.end()}, said);
}

// Takes bytes that begin at byte `begin` of a piece.
void AnswerSequence::Take(std::string_view bytes, size_t begin,
                          std::span<const text::Detokenizer::Special> specials, Said* said) {
  if (!parser_.has_value()) {
    said->AddText(bytes);
    return;
  }
  text::ResponseEvents events;
  size_t at = 0;
  for (const text::Detokenizer::Special& special : specials) {
    parser_->Push(bytes.substr(at, special.begin - begin - at), &events);
    parser_->PushSpecial(model_->text->TokenBytesKeepSpecial(special.id), &events);
    at = special.begin - begin;
  }
  parser_->Push(bytes.substr(at), &events);
  Tell(events, said);
}

void AnswerSequence::Tell(const text::ResponseEvents& events, Said* said) {
  using Kind = text::ResponseEvent::Kind;
  for (const text::ResponseEvent& event : events) {
    if (has_only_call_) return;
    switch (event.kind) {
      case Kind::kText:
        said->AddText(event.bytes);
        break;
      case Kind::kReasoning:
        said->AddReasoning(event.bytes);
        break;
      case Kind::kCallBegin: {
        v1::ToolCall call;
        call.set_index(static_cast<uint32_t>(num_calls_));
        call.set_id(CallId(format_->request_id, index_, num_calls_));
        call.set_name(event.bytes);
        said->BeginCall(std::move(call));
        ++num_calls_;
        break;
      }
      case Kind::kArguments:
        said->AddArguments(static_cast<uint32_t>(num_calls_ - 1), event.bytes);
        break;
      case Kind::kCallEnd:
        has_whole_call_ |= event.whole;
        has_only_call_ = format_->single_call && event.whole;
        break;
    }
  }
}

v1::FinishReason ToProto(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case engine::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case engine::FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace continuo::server

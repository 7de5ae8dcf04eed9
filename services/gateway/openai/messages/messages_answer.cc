// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/json_text.h"

namespace continuo::gateway::openai {
namespace {

// Clients send a block's signature back with it; nothing here needs one.
constexpr char kSignature[] = "continuo";

std::string_view StopReasonOf(const v1::Delta& delta) {
  switch (delta.finish_reason()) {
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_TIME_LIMIT:
      return "max_tokens";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_use";
    default:
      return delta.has_stop_sequence() ? "stop_sequence" : "end_turn";
  }
}

void AddEvent(std::string_view name, const OrderedJson& data, std::string* events) {
  OrderedJson event = {{"type", name}};
  event.update(data);
  events->append("event: ").append(name).append("\ndata: ").append(Dump(event)).append("\n\n");
}

OrderedJson TextOrNull(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

}  // namespace

MessagesAnswer::MessagesAnswer(Form form, std::string id, std::string model)
    : form_(form), id_(absl::StrCat("msg_", id)), model_(std::move(model)) {}

OrderedJson MessagesAnswer::UsageJson() const {
  return {{"input_tokens", usage_.prompt_tokens() - usage_.cached_prompt_tokens()},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage_.cached_prompt_tokens()},
          {"output_tokens", usage_.completion_tokens()}};
}

OrderedJson MessagesAnswer::Message() const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", OrderedJson::array()},
          {"stop_reason", TextOrNull(stop_reason_)},
          {"stop_sequence", TextOrNull(stop_sequence_)},
          {"usage", UsageJson()}};
}

void MessagesAnswer::AddStart(std::string* events) {
  if (std::exchange(begun_, true)) return;
  OrderedJson message = Message();
  // Some clients add this to the last event's number, which tells all of them.
  message["usage"]["output_tokens"] = 0;
  AddEvent("message_start", {{"message", std::move(message)}}, events);
  AddEvent("ping", OrderedJson::object(), events);
}

void MessagesAnswer::Add(int /*prompt*/, const v1::GenerateResponse& response,
                         std::string* events) {
  if (!response.accepted().model().empty()) model_ = response.accepted().model();
  if (response.has_progress()) {
    usage_.set_prompt_tokens(response.progress().prompt_tokens());
    usage_.set_cached_prompt_tokens(response.progress().cached_prompt_tokens());
  }
  if (response.has_summary()) usage_ = response.summary().usage();
  // The first event tells the prompt's tokens.
  if (form_.stream && (response.progress().prompt_tokens() > 0 || response.deltas_size() > 0)) {
    AddStart(events);
  }
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.index() == 0) AddDelta(delta, events);
  }
}

void MessagesAnswer::AddDelta(const v1::Delta& delta, std::string* events) {
  // A first piece without an id goes on with the call that is open.
  int calls = 0;
  if (delta.tool_calls_size() > 0 && delta.tool_calls(0).id().empty()) {
    AddPiece(Kind::kToolUse, delta.tool_calls(calls++).arguments(), events);
  }
  if (form_.shows_thinking) AddPiece(Kind::kThinking, delta.reasoning(), events);
  AddPiece(Kind::kText, delta.text(), events);
  for (; calls < delta.tool_calls_size(); ++calls) {
    const v1::ToolCall& call = delta.tool_calls(calls);
    if (!call.id().empty()) BeginCall(call, events);
    AddPiece(Kind::kToolUse, call.arguments(), events);
  }
  if (delta.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
  stop_reason_ = StopReasonOf(delta);
  stop_sequence_ = delta.stop_sequence();
}

void MessagesAnswer::Begin(Block block, std::string* events) {
  EndBlock(events);
  is_open_ = true;
  if (form_.stream) {
    blocks_.clear();
    OrderedJson content;
    switch (block.kind) {
      case Kind::kThinking:
        content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
        break;
      case Kind::kText:
        content = {{"type", "text"}, {"text", ""}};
        break;
      case Kind::kToolUse:
        content = {{"type", "tool_use"},
                   {"id", block.id},
                   {"name", block.name},
                   {"input", OrderedJson::object()}};
        break;
    }
    AddEvent("content_block_start", {{"index", num_blocks_}, {"content_block", std::move(content)}},
             events);
  } else {
    num_bytes_ += sizeof(Block) + block.id.size() + block.name.size();
  }
  ++num_blocks_;
  blocks_.push_back(std::move(block));
}

void MessagesAnswer::BeginCall(const v1::ToolCall& call, std::string* events) {
  Begin({.kind = Kind::kToolUse, .id = call.id(), .name = call.name(), .text = ""}, events);
}

void MessagesAnswer::AddPiece(Kind kind, std::string_view piece, std::string* events) {
  if (piece.empty()) return;
  if (!is_open_ || blocks_.back().kind != kind) {
    if (kind == Kind::kToolUse) return;  // arguments of no call
    Begin({.kind = kind, .id = "", .name = "", .text = ""}, events);
  }
  if (!form_.stream) {
    std::string& text = blocks_.back().text;
    num_bytes_ -= text.capacity();
    // Arguments are JSON already.
    if (kind == Kind::kToolUse) {
      text.append(piece);
    } else {
      AppendCharacters(piece, &text);
    }
    num_bytes_ += text.capacity();
    return;
  }
  AddPieceEvent(kind, piece, events);
}

void MessagesAnswer::AddPieceEvent(Kind kind, std::string_view piece, std::string* events) const {
  // There is one for nearly each token, so it is written without a tree.
  const char* const delta = kind == Kind::kThinking ? R"("thinking_delta","thinking":)"
                            : kind == Kind::kText   ? R"("text_delta","text":)"
                                                    : R"("input_json_delta","partial_json":)";
  absl::StrAppend(events,
                  "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
                  num_blocks_ - 1, ",\"delta\":{\"type\":", delta);
  AppendString(piece, events);
  events->append("}}\n\n");
}

void MessagesAnswer::EndBlock(std::string* events) {
  if (!std::exchange(is_open_, false) || !form_.stream) return;
  const int index = num_blocks_ - 1;
  if (blocks_.back().kind == Kind::kThinking) {
    AddEvent(
        "content_block_delta",
        {{"index", index}, {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}},
        events);
  }
  AddEvent("content_block_stop", {{"index", index}}, events);
}

void MessagesAnswer::AddEnd(std::string* events) {
  AddStart(events);
  EndBlock(events);
  AddEvent(
      "message_delta",
      {{"delta",
        {{"stop_reason", TextOrNull(stop_reason_)}, {"stop_sequence", TextOrNull(stop_sequence_)}}},
       {"usage", UsageJson()}},
      events);
  AddEvent("message_stop", OrderedJson::object(), events);
}

void MessagesAnswer::AddError(const absl::Status&, std::string_view error, std::string* events) {
  events->append("event: error\ndata: ").append(error).append("\n\n");
}

std::vector<std::string> MessagesAnswer::TakeBody() {
  const std::string message = Dump(Message());
  constexpr std::string_view kContent = R"("content":[)";
  const size_t at = message.find(kContent) + kContent.size();
  std::vector<std::string> pieces;
  std::string json = message.substr(0, at);
  const auto add = [&](std::string piece) {
    pieces.push_back(std::exchange(json, {}));
    pieces.push_back(std::move(piece));
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (i > 0) json.push_back(',');
    switch (block.kind) {
      case Kind::kThinking:
        json.append(R"({"type":"thinking","thinking":")");
        add(std::move(block.text));
        absl::StrAppend(&json, R"(","signature":")", kSignature, R"("})");
        break;
      case Kind::kText:
        json.append(R"({"type":"text","text":")");
        add(std::move(block.text));
        json.append(R"("})");
        break;
      case Kind::kToolUse: {
        OrderedJson head = {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}};
        std::string text = Dump(head);
        text.pop_back();
        json.append(text).append(R"(,"input":)");
        // A call that max_tokens cut has no arguments that could be read.
        const bool is_whole = nlohmann::json::accept(block.text);
        add(is_whole ? std::move(block.text) : "{}");
        json.append("}");
        break;
      }
    }
  }
  json.append(message.substr(at));
  pieces.push_back(std::move(json));
  blocks_.clear();
  num_bytes_ = 0;
  return pieces;
}

}  // namespace continuo::gateway::openai

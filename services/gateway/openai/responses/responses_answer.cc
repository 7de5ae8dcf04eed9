// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_answer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_text.h"
#include "services/gateway/openai/responses/input_items.h"

namespace continuo::gateway::openai {
namespace {

OrderedJson PartJson(std::string_view type, const std::string& text) {
  OrderedJson part = {{"type", type}, {"text", text}};
  if (type == "output_text") {
    part["annotations"] = OrderedJson::array();
    part["logprobs"] = OrderedJson::array();
  }
  return part;
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(ResponsesForm form, std::string id, std::string model,
                                 int64_t created)
    : form_(std::move(form)), id_(std::move(id)), model_(std::move(model)), created_(created) {}

OrderedJson ResponsesAnswer::ItemJson(const Item& item, std::string_view status) const {
  switch (item.kind) {
    case Kind::kReasoning: {
      OrderedJson json = {
          {"id", item.id}, {"type", "reasoning"}, {"summary", OrderedJson::array()}};
      json["content"] = OrderedJson::array();
      if (!item.text.empty()) json["content"].push_back(PartJson("reasoning_text", item.text));
      if (form_.encodes_reasoning) {
        json["encrypted_content"] =
            item.is_open ? OrderedJson() : OrderedJson(EncodeReasoning(item.text));
      }
      json["status"] = status;
      return json;
    }
    case Kind::kMessage: {
      OrderedJson json = {
          {"id", item.id}, {"type", "message"}, {"status", status}, {"role", "assistant"}};
      json["content"] = OrderedJson::array();
      if (!item.text.empty()) json["content"].push_back(PartJson("output_text", item.text));
      return json;
    }
    case Kind::kCall:
      break;
  }
  return {{"id", item.id},     {"type", "function_call"}, {"call_id", item.call_id},
          {"name", item.name}, {"arguments", item.text},  {"status", status}};
}

std::string ResponsesAnswer::Response(std::string_view status) const {
  const bool is_complete = status == "completed";
  OrderedJson json = {
      {"id", absl::StrCat("resp_", id_)},
      {"object", "response"},
      {"created_at", created_},
      {"completed_at", is_complete ? OrderedJson(created_ + seconds_) : OrderedJson()},
      {"status", status},
      {"error", error_},
      {"incomplete_details", nullptr},
      {"model", model_},
      {"output", OrderedJson::array()}};
  if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  for (size_t i = 0; i < items_.size(); ++i) {
    const bool is_last = !is_complete && i + 1 == items_.size();
    // What is under way goes on; any other end has cut the last one.
    const std::string_view cut = status == "in_progress" ? status : "incomplete";
    json["output"].push_back(ItemJson(items_[i], is_last ? cut : "completed"));
  }
  json["usage"] = nullptr;
  if (has_usage_) {
    json["usage"] = {
        {"input_tokens", usage_.prompt_tokens()},
        {"input_tokens_details",
         {{"cached_tokens", usage_.cached_prompt_tokens()}, {"cache_write_tokens", 0}}},
        {"output_tokens", usage_.completion_tokens()},
        {"output_tokens_details", {{"reasoning_tokens", usage_.reasoning_tokens()}}},
        {"total_tokens", uint64_t{usage_.prompt_tokens()} + usage_.completion_tokens()}};
  }
  std::string text = Dump(json);
  if (form_.repeated.empty()) return text;
  text.back() = ',';
  return text.append(form_.repeated).append("}");
}

bool ResponsesAnswer::CountEvent() {
  if (!form_.stream) return false;
  ++num_events_;
  return !is_silent_;
}

void ResponsesAnswer::AddEvent(std::string_view type, OrderedJson data, std::string* events) {
  if (!CountEvent()) return;
  OrderedJson event = {{"type", type}, {"sequence_number", num_events_ - 1}};
  event.update(data);
  events->append("event: ").append(type).append("\ndata: ").append(Dump(event)).append("\n\n");
}

void ResponsesAnswer::AddResponseEvent(std::string_view type, std::string_view status,
                                       std::string* events) {
  if (!CountEvent()) return;
  absl::StrAppend(events, "event: ", std::string(type), "\ndata: {\"type\":\"", std::string(type),
                  "\",\"sequence_number\":", num_events_ - 1, ",\"response\":", Response(status),
                  "}\n\n");
}

OrderedJson ResponsesAnswer::Place() const {
  return {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
}

OrderedJson ResponsesAnswer::PlaceOfContent() const {
  OrderedJson place = Place();
  place["content_index"] = 0;
  return place;
}

void ResponsesAnswer::AddStart(std::string* events) {
  if (std::exchange(begun_, true) || !form_.stream) return;
  for (const char* type : {"response.created", "response.in_progress"}) {
    AddResponseEvent(type, "in_progress", events);
  }
}

void ResponsesAnswer::Add(int /*prompt*/, const v1::GenerateResponse& response,
                          std::string* events) {
  if (response.has_accepted()) {
    const v1::Accepted& accepted = response.accepted();
    if (!accepted.model().empty()) model_ = accepted.model();
    if (!begun_ && accepted.has_reference_time()) created_ = accepted.reference_time().seconds();
  }
  AddStart(events);
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.index() == 0) AddDelta(delta, events);
  }
  if (response.has_summary()) {
    usage_ = response.summary().usage();
    has_usage_ = true;
    seconds_ = response.summary().timings().total_duration().seconds();
  }
}

void ResponsesAnswer::AddDelta(const v1::Delta& delta, std::string* events) {
  // A first piece without an id goes on with the call that is open.
  int calls = 0;
  if (delta.tool_calls_size() > 0 && delta.tool_calls(0).id().empty()) {
    AddPiece(Kind::kCall, delta.tool_calls(calls++).arguments(), events);
  }
  AddPiece(Kind::kReasoning, delta.reasoning(), events);
  AddPiece(Kind::kMessage, delta.text(), events);
  for (; calls < delta.tool_calls_size(); ++calls) {
    const v1::ToolCall& call = delta.tool_calls(calls);
    if (!call.id().empty()) {
      Begin({.kind = Kind::kCall,
             .id = absl::StrCat("fc_", id_, "_", items_.size()),
             .call_id = call.id(),
             .name = call.name(),
             .text = ""},
            events);
    }
    AddPiece(Kind::kCall, call.arguments(), events);
  }
  if (delta.finish_reason() == v1::FINISH_REASON_LENGTH ||
      delta.finish_reason() == v1::FINISH_REASON_TIME_LIMIT) {
    is_incomplete_ = true;
  }
}

void ResponsesAnswer::Begin(Item item, std::string* events) {
  EndItem("completed", events);
  num_bytes_ += sizeof(Item) + item.id.size() + item.call_id.size() + item.name.size();
  items_.push_back(std::move(item));
  const Item& begun = items_.back();
  AddEvent("response.output_item.added",
           {{"output_index", items_.size() - 1}, {"item", ItemJson(begun, "in_progress")}}, events);
  if (begun.kind == Kind::kCall) return;
  OrderedJson added = PlaceOfContent();
  added["part"] = PartJson(begun.kind == Kind::kMessage ? "output_text" : "reasoning_text", "");
  AddEvent("response.content_part.added", std::move(added), events);
}

void ResponsesAnswer::AddPiece(Kind kind, std::string_view piece, std::string* events) {
  if (piece.empty()) return;
  if (items_.empty() || items_.back().kind != kind || !items_.back().is_open) {
    if (kind == Kind::kCall) return;  // arguments of no call
    Begin({.kind = kind,
           .id = absl::StrCat(kind == Kind::kMessage ? "msg_" : "rs_", id_, "_", items_.size()),
           .call_id = "",
           .name = "",
           .text = ""},
          events);
  }
  std::string& text = items_.back().text;
  num_bytes_ -= text.capacity();
  text.append(piece);
  num_bytes_ += text.capacity() + sizeof(uint32_t);
  items_.back().pieces.push_back(static_cast<uint32_t>(piece.size()));
  AddPieceEvent(kind, piece, events);
}

void ResponsesAnswer::AddPieceEvent(Kind kind, std::string_view piece, std::string* events) {
  if (!CountEvent()) return;
  // There is one for nearly each token, so it is written without a tree.
  const char* const type = kind == Kind::kCall      ? "response.function_call_arguments.delta"
                           : kind == Kind::kMessage ? "response.output_text.delta"
                                                    : "response.reasoning_text.delta";
  absl::StrAppend(events, "event: ", type, "\ndata: {\"type\":\"", type,
                  "\",\"sequence_number\":", num_events_ - 1, ",\"item_id\":");
  AppendString(items_.back().id, events);
  absl::StrAppend(events, ",\"output_index\":", items_.size() - 1,
                  kind == Kind::kCall ? "" : ",\"content_index\":0", ",\"delta\":");
  AppendString(piece, events);
  if (kind == Kind::kMessage) events->append(",\"logprobs\":[]");
  events->append("}\n\n");
}

void ResponsesAnswer::EndItem(std::string_view status, std::string* events) {
  if (items_.empty() || !items_.back().is_open) return;
  Item& item = items_.back();
  item.is_open = false;
  if (!form_.stream) return;
  if (item.kind == Kind::kCall) {
    OrderedJson data = Place();
    data["name"] = item.name;
    data["arguments"] = item.text;
    AddEvent("response.function_call_arguments.done", std::move(data), events);
  } else {
    const bool is_text = item.kind == Kind::kMessage;
    OrderedJson data = PlaceOfContent();
    data["text"] = item.text;
    if (is_text) data["logprobs"] = OrderedJson::array();
    AddEvent(is_text ? "response.output_text.done" : "response.reasoning_text.done",
             std::move(data), events);
    OrderedJson part = PlaceOfContent();
    part["part"] = PartJson(is_text ? "output_text" : "reasoning_text", item.text);
    AddEvent("response.content_part.done", std::move(part), events);
  }
  AddEvent("response.output_item.done",
           {{"output_index", items_.size() - 1}, {"item", ItemJson(item, status)}}, events);
}

void ResponsesAnswer::AddEnd(std::string* events) {
  AddStart(events);
  EndItem(status(), events);
  AddResponseEvent(absl::StrCat("response.", std::string(status())), status(), events);
  events->append("data: [DONE]\n\n");
}

void ResponsesAnswer::AddError(const absl::Status& status, std::string_view error,
                               std::string* events) {
  AddStart(events);
  EndItem("incomplete", events);
  const OrderedJson told = OrderedJson::parse(error, nullptr, false);
  const OrderedJson inner =
      told.is_object() ? told.value("error", OrderedJson::object()) : OrderedJson::object();
  OrderedJson code = inner.value("code", OrderedJson());
  std::string message = inner.value("message", "the server had an error");
  // A stream has no Retry-After any more. Codex finds the seconds behind these words, of this code.
  if (const std::optional<int> seconds = RetryAfterOf(status);
      seconds.has_value() && absl::IsResourceExhausted(status)) {
    code = "rate_limit_exceeded";
    absl::StrAppend(&message, ". Please try again in ", *seconds, "s.");
  }
  error_ = {{"code", code.is_null() ? OrderedJson("server_error") : code},
            {"message", std::move(message)}};
  AddResponseEvent("response.failed", "failed", events);
  events->append("data: [DONE]\n\n");
}

void ResponsesAnswer::AddErrorAlone(const absl::Status& status, std::string_view error,
                                    int64_t number, std::string* events) {
  // The client knows better what there was.
  items_.clear();
  begun_ = true;
  num_events_ = number;
  AddError(status, error, events);
}

void ResponsesAnswer::set_num_events(int64_t number) {
  num_events_ = number;
  base_ = {.num_events = number,
           .begun = begun_,
           .num_items = items_.size(),
           .num_pieces = items_.empty() ? 0 : items_.back().pieces.size()};
}

// Adds what the answer has to another one, whose events follow from the same pieces.
class ResponsesAnswer::Teller : public Retrievable::Teller {
 public:
  explicit Teller(const ResponsesAnswer& answer)
      : answer_(answer), told_(FormOf(answer), answer.id_, answer.model_, answer.created_) {
    told_.is_silent_ = true;
    StartAtBase();
  }

  void Tell(const Ending* ending, std::string* events) override {
    told_.model_ = answer_.model_;
    if (!told_.begun_) told_.created_ = answer_.created_;
    if (answer_.begun_) told_.AddStart(events);
    StartAtBase();
    for (size_t i = told_.items_.empty() ? 0 : told_.items_.size() - 1; i < answer_.items_.size();
         ++i) {
      const Item& item = answer_.items_[i];
      if (i == told_.items_.size()) {
        told_.Begin({.kind = item.kind,
                     .id = item.id,
                     .call_id = item.call_id,
                     .name = item.name,
                     .text = ""},
                    events);
        StartAtBase();
      }
      while (told_.items_[i].pieces.size() < item.pieces.size()) {
        const size_t at = told_.items_[i].text.size();
        const uint32_t size = item.pieces[told_.items_[i].pieces.size()];
        told_.AddPiece(item.kind, std::string_view(item.text).substr(at, size), events);
        StartAtBase();
      }
    }
    if (ending == nullptr) return;
    told_.usage_ = answer_.usage_;
    told_.has_usage_ = answer_.has_usage_;
    told_.seconds_ = answer_.seconds_;
    told_.is_incomplete_ = answer_.is_incomplete_;
    if (ending->status.ok()) {
      told_.AddEnd(events);
    } else {
      told_.AddError(ending->status, ending->error, events);
    }
  }

  size_t num_bytes() const override { return told_.num_bytes(); }

 private:
  static ResponsesForm FormOf(const ResponsesAnswer& answer) {
    return {.stream = true,
            .encodes_reasoning = answer.form_.encodes_reasoning,
            .repeated = answer.form_.repeated};
  }
  // Events before the base have numbers that nobody asks for.
  void StartAtBase() {
    const Base& base = answer_.base_;
    if (!told_.is_silent_ || told_.begun_ != base.begun || told_.items_.size() != base.num_items ||
        (base.num_items > 0 && told_.items_.back().pieces.size() != base.num_pieces)) {
      return;
    }
    told_.is_silent_ = false;
    told_.num_events_ = base.num_events;
  }

  const ResponsesAnswer& answer_;
  ResponsesAnswer told_;
};

std::unique_ptr<Retrievable::Teller> ResponsesAnswer::MakeTeller() const {
  return std::make_unique<Teller>(*this);
}

std::vector<std::string> ResponsesAnswer::TakeBody() {
  EndItem(status(), nullptr);
  std::vector<std::string> body = {Response(status())};
  items_.clear();
  form_.repeated.clear();
  num_bytes_ = 0;
  return body;
}

}  // namespace continuo::gateway::openai

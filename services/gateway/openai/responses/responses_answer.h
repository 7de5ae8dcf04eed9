// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/responses/responses_request.h"

namespace continuo::gateway::openai {

// The answer of /v1/responses: items for thoughts, text and calls in the order in which they come.
// Also a stream keeps them all, since its last event repeats the whole response. The form is that
// of OpenAI's API reference (Responses, Streaming events) and of Open Responses.
class ResponsesAnswer : public Answer, public Retrievable {
 public:
  // `id` has no prefix. `model` and `created` (Unix seconds) hold until a worker tells its own.
  ResponsesAnswer(ResponsesForm form, std::string id, std::string model, int64_t created);

  void Add(int prompt, const v1::GenerateResponse& response, std::string* events) override;
  void AddEnd(std::string* events) override;
  void AddError(const absl::Status& status, std::string_view error, std::string* events) override;
  void AddErrorAlone(const absl::Status& status, std::string_view error, int64_t number,
                     std::string* events) override;
  std::vector<std::string> TakeBody() override;
  void set_num_events(int64_t number) override;
  const Retrievable* retrievable() const override { return this; }
  std::string Snapshot(std::string_view status) const override { return Response(status); }
  int64_t first_event() const override { return base_.num_events; }
  std::unique_ptr<Retrievable::Teller> MakeTeller() const override;
  // At its end the text is told several times at once.
  size_t num_bytes() const override { return kCopies * (num_bytes_ + form_.repeated.size()); }

 private:
  static constexpr size_t kCopies = 6;

  class Teller;

  enum class Kind : uint8_t { kReasoning, kMessage, kCall };

  struct Item {
    Kind kind;
    std::string id, call_id, name;
    std::string text;                   // thoughts, text, or the call's arguments
    std::vector<uint32_t> pieces = {};  // the size of each event's part of the text
    bool is_open = true;
  };

  // A place among the events: behind this many items, and pieces of the last one.
  struct Base {
    int64_t num_events = 0;
    bool begun = false;
    size_t num_items = 0, num_pieces = 0;
  };

  // Numbers the next event. False if it makes no text: there is no stream, or it is told to nobody.
  bool CountEvent();
  void AddDelta(const v1::Delta& delta, std::string* events);
  // Adds to the last item, or to a new one if that is of another kind.
  void AddPiece(Kind kind, std::string_view piece, std::string* events);
  // Appends the event of a piece of the last item.
  void AddPieceEvent(Kind kind, std::string_view piece, std::string* events);
  void Begin(Item item, std::string* events);
  void EndItem(std::string_view status, std::string* events);
  // The first events.
  void AddStart(std::string* events);
  // Numbers the event and appends it, where there is a stream.
  void AddEvent(std::string_view type, OrderedJson data, std::string* events);
  // The members that tell the last item, or its content, in an event.
  OrderedJson Place() const;
  OrderedJson PlaceOfContent() const;
  // The item with what it has so far.
  OrderedJson ItemJson(const Item& item, std::string_view status) const;
  // The whole response, as the text of a JSON object.
  std::string Response(std::string_view status) const;
  void AddResponseEvent(std::string_view type, std::string_view status, std::string* events);
  std::string_view status() const { return is_incomplete_ ? "incomplete" : "completed"; }

  ResponsesForm form_;
  const std::string id_;
  std::string model_;
  int64_t created_;
  bool begun_ = false, is_incomplete_ = false;
  int64_t num_events_ = 0, seconds_ = 0;
  // What was there when the number of events was set. Events before it had another division.
  Base base_;
  bool is_silent_ = false;  // events make no text
  std::vector<Item> items_;
  OrderedJson error_;
  v1::Usage usage_;
  bool has_usage_ = false;
  size_t num_bytes_ = 0;
};

}  // namespace continuo::gateway::openai

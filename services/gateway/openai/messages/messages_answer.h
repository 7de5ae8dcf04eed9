// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/answer/answer.h"

namespace continuo::gateway::openai {

// The answer of /v1/messages: blocks of thoughts, text and calls in the order in which they come.
// The form is that of Anthropic's API reference (Messages, Streaming Messages).
class MessagesAnswer : public Answer {
 public:
  struct Form {
    bool stream = false;
    bool shows_thinking = false;  // else thoughts are left out
  };

  // `id` has no prefix. `model` holds until a worker tells its own.
  MessagesAnswer(Form form, std::string id, std::string model);

  void Add(int prompt, const v1::GenerateResponse& response, std::string* events) override;
  void AddEnd(std::string* events) override;
  void AddError(const absl::Status& status, std::string_view error, std::string* events) override;
  std::vector<std::string> TakeBody() override;
  size_t num_bytes() const override { return num_bytes_; }

 private:
  enum class Kind : uint8_t { kThinking, kText, kToolUse };

  struct Block {
    Kind kind;
    std::string id, name;  // kToolUse
    std::string text;      // without a stream: thoughts, text, or the call's arguments
  };

  void AddDelta(const v1::Delta& delta, std::string* events);
  // Adds to the last block, or to a new one if that is of another kind or ended.
  void AddPiece(Kind kind, std::string_view piece, std::string* events);
  // Appends the event of a piece of the last block.
  void AddPieceEvent(Kind kind, std::string_view piece, std::string* events) const;
  // Ends the last block, if it is open, and begins the call's.
  void BeginCall(const v1::ToolCall& call, std::string* events);
  void Begin(Block block, std::string* events);
  void EndBlock(std::string* events);
  // The first event.
  void AddStart(std::string* events);
  OrderedJson Message() const;
  OrderedJson UsageJson() const;

  const Form form_;
  const std::string id_;
  std::string model_;
  bool begun_ = false, is_open_ = false;
  int num_blocks_ = 0;
  std::vector<Block> blocks_;  // in a stream the last one alone, without its text
  std::string stop_reason_, stop_sequence_;
  v1::Usage usage_;
  size_t num_bytes_ = 0;
};

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/cli/client/console.h"

namespace continuo::cli {

// An answer as the next request has it in its conversation.
struct Answer {
  std::string text, reasoning;
  std::vector<v1::ToolCall> tool_calls;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
};

// Prints the answer while it arrives, on a terminal with its thoughts in front. The first sequence
// is printed as it comes; each other one follows under a title, when the one before is complete.
// Calls of the first one go to `err` as they come, a line each: "[weather {"name": "Mira"}]".
// Not thread-safe.
class AnswerPrinter {
 public:
  // The console outlives this.
  AnswerPrinter(const Console& console, uint32_t num_sequences)
      : console_(console), num_sequences_(num_sequences) {}

  void Take(const v1::GenerateResponse& response);
  // Ends the last line, where it has no newline.
  void End();
  // The first sequence.
  const Answer& answer() { return sequences_[0].answer; }

 private:
  struct Sequence {
    Answer answer;
    std::string pending;  // The text that is not printed yet.
    bool finished = false, titled = false;
    bool thinks = false;  // What was printed last is a thought.
    char last = '\n';     // What was printed last.
  };
  void EndLine(Sequence& sequence);
  void TakeCalls(Sequence& sequence, const v1::Delta& delta);
  void CloseCall();

  const Console& console_;
  const uint32_t num_sequences_;
  std::map<uint32_t, Sequence> sequences_;  // By index.
  uint32_t current_ = 0;
  bool call_open_ = false;  // The line of a call has no end yet.
};

// Collects the figures of an answer for the line that --verbose prints after it.
class UsageLine {
 public:
  void Take(const v1::GenerateResponse& response);
  std::string Text() const;

 private:
  const absl::Time begin_ = absl::Now();
  absl::Time first_ = absl::InfiniteFuture();  // When the first token arrived.
  v1::Accepted accepted_;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Summary summary_;
};

}  // namespace continuo::cli

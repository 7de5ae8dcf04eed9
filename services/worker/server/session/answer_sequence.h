// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/text/detokenizer.h"

namespace continuo::server {

// The rules that end a sequence, apart from the engine's own limits. The same for all sequences of
// a request.
struct StopRules {
  std::vector<std::string> strings;
  bool include_stop = false;  // the text of what stopped, string or stop id, is part of the answer
  std::vector<int32_t> eos_ids;   // ascending; empty with ignore_eos
  std::vector<int32_t> stop_ids;  // the client's, ascending
  int min_tokens = 0;
  int max_tokens = 0;

  bool EndsSequence(int32_t token) const;
};

// One of a request's sequences, as its reader sees it: tokens in, text and finish reason out, one
// token at a time. Its output is a function of the tokens alone (exactness: text-per-token,
// one-last-delta), so live tokens and the replayed ones of a continuation go through it alike. Not
// thread-safe.
class AnswerSequence {
 public:
  // Model and rules outlive the sequence.
  AnswerSequence(const ServedModel* model, const StopRules* rules);

  // The text that the newest token, or the end, made deliverable.
  struct Output {
    std::string text;
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    int matched_string = -1;        // index of the stop string that was met
    int32_t matched_token_id = -1;  // stop id that was met
    // With an end: the number of bytes at the end of `text` that a sequence which goes on would
    // hold back.
    size_t num_held = 0;
  };

  // Takes the next token. With FINISH_REASON_STOP the sequence has ended; a sequence that a limit
  // ends is ended by End(). With `stops_active` false no rule ends it here.
  Output Push(int32_t token, bool stops_active = true);

  // Ends the sequence at a limit and returns the text that was held back.
  Output End(v1::FinishReason why);

  // Ends it without output: its finish reason was received before.
  void MarkFinished() { finished_ = true; }

  bool finished() const { return finished_; }
  int num_tokens() const { return num_tokens_; }

 private:
  const StopRules* rules_;
  text::Detokenizer detokenizer_;
  int num_tokens_ = 0;
  bool finished_ = false;
};

// The wire's finish reason for the engine's.
v1::FinishReason ToProto(engine::FinishReason reason);

}  // namespace continuo::server

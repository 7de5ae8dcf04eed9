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

// What ends a sequence, as the edge sees it. Alike for all sequences of a request.
struct StopRules {
  std::vector<std::string> strings;
  bool include_stop = false;
  std::vector<int32_t> eos_ids;   // ascending; empty with ignore_eos
  std::vector<int32_t> stop_ids;  // the client's, ascending
  int min_tokens = 0;
  int max_tokens = 0;

  bool EndsSequence(int32_t token) const;
};

// One of a request's sequences, as its reader sees it: tokens in, text and finish reason out, one
// token at a time. What it says is a function of the tokens alone (exactness: text-per-token,
// one-last-delta), so live tokens and the replayed ones of a continuation go through it alike. Not
// thread-safe.
class AnswerSequence {
 public:
  // Model and rules outlive the sequence.
  AnswerSequence(const ServedModel* model, const StopRules* rules);

  // What the newest token made deliverable, or the end did.
  struct Output {
    std::string text;
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    int matched_string = -1;        // index of the stop string that was met
    int32_t matched_token_id = -1;  // stop id that was met
    // Of an end: so many bytes at the end of `text` are held back by a sequence that has not ended.
    size_t num_held = 0;
  };

  // The next token. With FINISH_REASON_STOP the sequence has ended; what a limit ends is told by
  // End(). `stops_active` false: nothing ends here, whatever the rules say.
  Output Push(int32_t token, bool stops_active = true);

  // Ends the sequence at a limit, with the text that was held back.
  Output End(v1::FinishReason why);

  // Ends it without a word: its finish reason is known already.
  void MarkFinished() { finished_ = true; }

  bool finished() const { return finished_; }
  int num_tokens() const { return num_tokens_; }

 private:
  const StopRules* rules_;
  text::Detokenizer detokenizer_;
  int num_tokens_ = 0;
  bool finished_ = false;
};

// The wire's finish reason of the engine's.
v1::FinishReason ToProto(engine::FinishReason reason);

}  // namespace continuo::server

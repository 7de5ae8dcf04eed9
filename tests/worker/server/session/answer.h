// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "continuo/v1/inference.pb.h"
#include "services/protocol/limits.h"

namespace continuo::testing {

// The content of a stream, independent of its division into responses.
struct Answer {
  struct Sequence {
    std::string text, reasoning;
    std::vector<uint32_t> ids;
    std::vector<std::string> logprobs;  // serialised
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    std::string matched;
    friend bool operator==(const Sequence&, const Sequence&) = default;
  };
  std::map<int, Sequence> sequences;
  std::vector<std::string> prompt_logprobs, prompt_tokens;  // serialised
  v1::Summary summary;
  bool has_summary = false;
  v1::Accepted accepted;
  uint64_t next_sequence = 0;

  // Adds the next response of the stream, and checks the rules of every stream.
  void Add(const v1::GenerateResponse& response, bool collect = false) {
    EXPECT_EQ(response.sequence(), next_sequence);
    ++next_sequence;
    EXPECT_FALSE(has_summary) << "nothing follows the summary";
    EXPECT_LE(response.ByteSizeLong(),
              collect ? protocol::kMaxUnsplitResponseBytes : protocol::kMaxResponseBytes);
    if (response.has_accepted()) accepted = response.accepted();
    if (!collect && response.prompt_tokens_size() > 0) {
      EXPECT_TRUE(sequences.empty() && prompt_logprobs.empty()) << "the prompt's tokens come first";
    }
    for (const auto& token : response.prompt_tokens()) {
      prompt_tokens.push_back(token.SerializeAsString());
    }
    if (!collect && response.prompt_logprobs_size() > 0) {
      EXPECT_TRUE(sequences.empty()) << "prompt log-probabilities come before the first delta";
    }
    for (const auto& logprob : response.prompt_logprobs()) {
      prompt_logprobs.push_back(logprob.SerializeAsString());
    }
    for (const v1::Delta& delta : response.deltas()) {
      Sequence& s = sequences[static_cast<int>(delta.index())];
      EXPECT_EQ(s.finish, v1::FINISH_REASON_UNSPECIFIED) << "a delta after the last one";
      s.text += delta.text();
      s.reasoning += delta.reasoning();
      s.ids.insert(s.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      for (const auto& logprob : delta.logprobs()) {
        s.logprobs.push_back(logprob.SerializeAsString());
      }
      s.finish = delta.finish_reason();
      if (delta.has_stop_sequence()) s.matched = "string " + delta.stop_sequence();
      if (delta.has_stop_token_id()) s.matched = absl::StrCat("id ", delta.stop_token_id());
    }
    if (response.has_summary()) {
      has_summary = true;
      summary = response.summary();
    }
  }

  // Returns everything that must equal an undisturbed run.
  std::string Comparable() const {
    std::string all;
    for (const auto& [index, s] : sequences) {
      absl::StrAppend(&all, index, ": \"", s.text, "\" thought \"", s.reasoning, "\" ids");
      for (const uint32_t id : s.ids) absl::StrAppend(&all, " ", id);
      for (const std::string& logprob : s.logprobs) absl::StrAppend(&all, "|", logprob);
      absl::StrAppend(&all, " finish ", s.finish, " ", s.matched, "\n");
    }
    for (const std::string& logprob : prompt_logprobs) absl::StrAppend(&all, "|", logprob);
    for (const std::string& token : prompt_tokens) absl::StrAppend(&all, "|", token);
    v1::Usage usage = summary.usage();
    usage.clear_cached_prompt_tokens();
    absl::StrAppend(&all, " usage ", usage.ShortDebugString(), " seed ", accepted.seed(), " id ",
                    accepted.request_id());
    return all;
  }
};

inline Answer AnswerOf(const std::vector<v1::GenerateResponse>& responses, bool collect = false) {
  Answer answer;
  for (const v1::GenerateResponse& response : responses) answer.Add(response, collect);
  return answer;
}

}  // namespace continuo::testing

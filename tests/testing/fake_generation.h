// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"

namespace continuo {

// The answer of a worker without a model. Each token is a hash of request, fingerprint, index and
// all tokens before it, so anything lost, repeated or out of place on the way changes all that
// follows. A continuation is checked against this worker's own answer. The grouping of tokens into
// responses depends on the worker's name, the tokens do not. The text of every second token is held
// back until the next one.
class FakeGeneration {
 public:
  struct Worker {
    std::string name;
    std::string fingerprint = "F";
    std::string tokenizer_fingerprint = "T";
    std::string model = "fake";
  };

  // `request_id` is used if the request has none. Defaults: 20 tokens, one sequence, seed 1.
  FakeGeneration(const Worker& worker, const v1::GenerateRequest& request,
                 const std::string& request_id);

  // INVALID_ARGUMENT if the continuation is not a beginning of this answer; FAILED_PRECONDITION if
  // it is by another tokenizer.
  const absl::Status& status() const { return status_; }
  // The next response; none after the last one.
  std::optional<v1::GenerateResponse> Next();

 private:
  struct Sequence {
    std::vector<uint32_t> ids;
    size_t text_begin = 0;  // number of tokens whose text was sent
    bool finished = false;
  };
  uint32_t TokenAt(uint32_t index, const std::vector<uint32_t>& before) const;
  v1::FinishReason FinishOf(const Sequence& sequence) const;
  v1::GenerateResponse Begin();
  void AddDelta(uint32_t index, int num_tokens, v1::GenerateResponse* response);
  void AddSummary(v1::GenerateResponse* response);

  const v1::GenerateRequest request_;
  v1::Accepted accepted_;
  uint64_t key_ = 0;  // the tokens are hashes of it
  uint64_t grouping_ = 0;
  size_t max_tokens_ = 20;
  std::vector<Sequence> sequences_;
  uint64_t next_sequence_ = 0;
  int64_t prompt_logprobs_left_ = 0;
  bool first_ = true;
  bool done_ = false;
  absl::Status status_;
};

// The responses as a client sees them in the end, independent of their grouping.
struct JoinedAnswer {
  struct Sequence {
    std::string text;
    std::vector<uint32_t> ids;
    std::vector<float> logprobs;
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    bool operator==(const Sequence&) const = default;
  };
  std::map<uint32_t, Sequence> sequences;
  int64_t num_prompt_logprobs = 0;
  uint32_t completion_tokens = 0, prompt_tokens = 0;
  int num_summaries = 0;
  bool gapless = true;  // `sequence` counts from `first_sequence`
  bool operator==(const JoinedAnswer&) const = default;
};
JoinedAnswer Join(const std::vector<v1::GenerateResponse>& responses, uint64_t first_sequence = 0);

// The answer of an undisturbed worker.
JoinedAnswer UndisturbedAnswer(const v1::GenerateRequest& request);

}  // namespace continuo

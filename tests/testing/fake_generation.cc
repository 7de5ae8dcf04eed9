// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_generation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/random.h"
#include "services/protocol/error.h"

namespace continuo {
namespace {

constexpr uint32_t kPromptTokens = 7;

uint64_t Mix(uint64_t hash, uint64_t value) { return SplitMix64::At(hash ^ value, 0); }

uint64_t Mix(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = Mix(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

FakeGeneration::FakeGeneration(const Worker& worker, const v1::GenerateRequest& request,
                               const std::string& request_id)
    : request_(request) {
  const v1::GenerateResponse& received = request.continuation().received();
  const bool continued = received.has_accepted();
  if (continued) {
    accepted_ = received.accepted();
    accepted_.set_migrations(accepted_.migrations() + 1);
    if (accepted_.tokenizer_fingerprint() != worker.tokenizer_fingerprint) {
      status_ = protocol::WithReason(absl::FailedPreconditionError("another tokenizer"),
                                     protocol::kReasonModelChanged);
      return;
    }
    if (accepted_.fingerprint() != worker.fingerprint) accepted_.set_inexact(true);
    next_sequence_ = received.sequence() + 1;
  } else {
    accepted_.set_request_id(request.request_id().empty() ? request_id : request.request_id());
    accepted_.set_seed(request.sampling().has_seed() ? request.sampling().seed() : 1);
  }
  accepted_.set_model(worker.model);
  accepted_.set_worker(worker.name);
  accepted_.set_fingerprint(worker.fingerprint);
  accepted_.set_tokenizer_fingerprint(worker.tokenizer_fingerprint);

  key_ = Mix(Mix(Mix(1, request.text()), worker.fingerprint), accepted_.seed());
  grouping_ = Mix(2, worker.name);
  if (request.stopping().has_max_tokens()) max_tokens_ = request.stopping().max_tokens();
  sequences_.resize(request.sampling().has_num_sequences() ? request.sampling().num_sequences()
                                                           : 1);
  if (request.output().has_prompt_logprobs()) {
    prompt_logprobs_left_ = kPromptTokens - 1 - received.prompt_logprobs_size();
  }

  std::vector<bool> ended(sequences_.size());
  for (const v1::Delta& delta : received.deltas()) {
    if (delta.index() >= sequences_.size()) {
      status_ = absl::InvalidArgumentError("continuation: no such sequence");
      return;
    }
    Sequence& sequence = sequences_[delta.index()];
    for (const uint32_t id : delta.token_ids()) {
      if (!accepted_.inexact() && id != TokenAt(delta.index(), sequence.ids)) {
        status_ = absl::InvalidArgumentError(absl::StrCat("continuation: sequence ", delta.index(),
                                                          " cannot have ", id, " at ",
                                                          sequence.ids.size()));
        return;
      }
      sequence.ids.push_back(id);
    }
    // The text of an odd number of tokens was held back.
    sequence.text_begin = sequence.ids.size() / 2 * 2;
    sequence.finished = delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  }
  done_ = received.has_summary();
}

uint32_t FakeGeneration::TokenAt(uint32_t index, const std::vector<uint32_t>& before) const {
  uint64_t hash = Mix(key_, index);
  for (const uint32_t id : before) hash = Mix(hash, id);
  return static_cast<uint32_t>(hash % 50000);
}

v1::FinishReason FakeGeneration::FinishOf(const Sequence& sequence) const {
  if (!sequence.ids.empty() && sequence.ids.back() % 61 == 0) return v1::FINISH_REASON_STOP;
  if (sequence.ids.size() >= max_tokens_) return v1::FINISH_REASON_LENGTH;
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::GenerateResponse FakeGeneration::Begin() {
  v1::GenerateResponse response;
  response.set_sequence(next_sequence_++);
  if (std::exchange(first_, false)) *response.mutable_accepted() = accepted_;
  return response;
}

void FakeGeneration::AddDelta(uint32_t index, int num_tokens, v1::GenerateResponse* response) {
  Sequence& sequence = sequences_[index];
  v1::Delta& delta = *response->add_deltas();
  delta.set_index(index);
  for (int i = 0; i < num_tokens && FinishOf(sequence) == v1::FINISH_REASON_UNSPECIFIED; ++i) {
    const uint32_t id = TokenAt(index, sequence.ids);
    sequence.ids.push_back(id);
    delta.add_token_ids(id);
    if (request_.output().has_logprobs()) {
      v1::TokenLogprob& logprob = *delta.add_logprobs();
      logprob.set_token_id(id);
      logprob.set_logprob(-static_cast<float>(id) / 1024);
    }
  }
  const v1::FinishReason finish = FinishOf(sequence);
  sequence.finished = finish != v1::FINISH_REASON_UNSPECIFIED;
  delta.set_finish_reason(finish);
  const size_t text_end = sequence.finished ? sequence.ids.size() : sequence.ids.size() / 2 * 2;
  for (; sequence.text_begin < text_end; ++sequence.text_begin) {
    absl::StrAppend(delta.mutable_text(), sequence.ids[sequence.text_begin], " ");
  }
}

void FakeGeneration::AddSummary(v1::GenerateResponse* response) {
  size_t tokens = 0;
  for (const Sequence& sequence : sequences_) tokens += sequence.ids.size();
  v1::Summary& summary = *response->mutable_summary();
  summary.mutable_usage()->set_prompt_tokens(kPromptTokens);
  summary.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(tokens));
  summary.set_migrations(accepted_.migrations());
  summary.set_inexact(accepted_.inexact());
  done_ = true;
}

std::optional<v1::GenerateResponse> FakeGeneration::Next() {
  if (done_ || !status_.ok()) return std::nullopt;
  if (request_.output().collect()) {
    v1::GenerateResponse response = Begin();
    for (; prompt_logprobs_left_ > 0; --prompt_logprobs_left_) response.add_prompt_logprobs();
    for (uint32_t i = 0; i < sequences_.size(); ++i) AddDelta(i, 1 << 20, &response);
    AddSummary(&response);
    return response;
  }
  const bool alone = first_;  // Accepted comes before the first token
  v1::GenerateResponse response = Begin();
  if (alone) return response;
  if (prompt_logprobs_left_ > 0) {
    for (int i = 0; i < 4 && prompt_logprobs_left_ > 0; ++i, --prompt_logprobs_left_) {
      response.add_prompt_logprobs();
    }
    return response;
  }
  grouping_ = Mix(grouping_, next_sequence_);
  for (uint32_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].finished) continue;
    const int num_tokens = static_cast<int>((grouping_ >> (i % 16)) % 4);
    // Some sequences get nothing, but never all of them.
    if (num_tokens > 0 || response.deltas_size() == 0) {
      AddDelta(i, std::max(num_tokens, 1), &response);
    }
  }
  const bool all_finished = std::all_of(sequences_.begin(), sequences_.end(),
                                        [](const Sequence& s) { return s.finished; });
  // The summary comes with the last delta or after it.
  if (all_finished && (response.deltas_size() == 0 || grouping_ % 2 == 0)) AddSummary(&response);
  return response;
}

JoinedAnswer Join(const std::vector<v1::GenerateResponse>& responses, uint64_t first_sequence) {
  JoinedAnswer answer;
  uint64_t expected = first_sequence;
  for (const v1::GenerateResponse& response : responses) {
    answer.gapless = answer.gapless && response.sequence() == expected++;
    answer.num_prompt_logprobs += response.prompt_logprobs_size();
    for (const v1::Delta& delta : response.deltas()) {
      JoinedAnswer::Sequence& sequence = answer.sequences[delta.index()];
      sequence.text += delta.text();
      sequence.ids.insert(sequence.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      for (const v1::TokenLogprob& l : delta.logprobs()) sequence.logprobs.push_back(l.logprob());
      if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
        sequence.finish = delta.finish_reason();
      }
    }
    if (response.has_summary()) {
      answer.num_summaries += 1;
      answer.completion_tokens = response.summary().usage().completion_tokens();
      answer.prompt_tokens = response.summary().usage().prompt_tokens();
    }
  }
  return answer;
}

JoinedAnswer UndisturbedAnswer(const v1::GenerateRequest& request) {
  FakeGeneration generation({.name = "undisturbed"}, request, "id");
  std::vector<v1::GenerateResponse> responses;
  while (auto response = generation.Next()) responses.push_back(*std::move(response));
  return Join(responses);
}

}  // namespace continuo

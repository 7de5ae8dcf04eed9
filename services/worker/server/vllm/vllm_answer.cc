// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_answer.h"

#include <string>

namespace continuo::server {
namespace {

namespace engine_v1 = vllm::grpc::engine;

engine_v1::TopLogProbs AlternativesOf(const v1::TokenLogprob& logprob) {
  engine_v1::TopLogProbs top;
  for (const v1::TokenLogprob::Alternative& alternative : logprob.alternatives()) {
    top.add_token_ids(alternative.token_id());
    top.add_values(alternative.logprob());
  }
  return top;
}

std::string ReasonOf(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

}  // namespace

void VllmAnswer::AddPrompt(const v1::GenerateResponse& response) {
  if (response.has_progress()) {
    prompt_tokens_ = response.progress().prompt_tokens();
    cached_tokens_ = response.progress().cached_prompt_tokens();
  }
  if (response.has_summary()) {
    prompt_tokens_ = response.summary().usage().prompt_tokens();
    cached_tokens_ = response.summary().usage().cached_prompt_tokens();
  }
  for (const v1::PromptToken& token : response.prompt_tokens()) {
    prompt_.add_token_ids(token.token_id());
  }
  for (const v1::TokenLogprob& logprob : response.prompt_logprobs()) {
    if (prompt_.token_logprobs().empty()) {
      prompt_.add_token_logprobs();
      if (form_.has_prompt_alternatives) prompt_.add_top_logprobs();
    }
    prompt_.add_token_logprobs()->set_value(logprob.logprob());
    if (form_.has_prompt_alternatives) *prompt_.add_top_logprobs() = AlternativesOf(logprob);
  }
}

engine_v1::GenerateResponse VllmAnswer::Chunk(const v1::Delta& delta) {
  engine_v1::GenerateResponse response;
  engine_v1::GenerateStreamChunk& chunk = *response.mutable_chunk();
  *chunk.mutable_token_ids() = delta.token_ids();
  chunk.set_prompt_tokens(prompt_tokens_);
  chunk.set_completion_tokens(static_cast<uint32_t>(delta.token_ids_size()));
  chunk.set_cached_tokens(cached_tokens_);
  chunk.set_index(delta.index());
  for (const v1::TokenLogprob& logprob : delta.logprobs()) {
    engine_v1::OutputLogProbs& logprobs = *chunk.mutable_output_logprobs();
    logprobs.add_token_ids(logprob.token_id());
    logprobs.add_token_logprobs(logprob.logprob());
    if (form_.has_alternatives) *logprobs.add_top_logprobs() = AlternativesOf(logprob);
  }
  if (has_begun_.size() <= delta.index()) has_begun_.resize(delta.index() + 1);
  if (!has_begun_[delta.index()] && prompt_.token_ids_size() > 0) {
    *chunk.mutable_input_logprobs() = prompt_;
  }
  has_begun_[delta.index()] = true;
  return response;
}

engine_v1::GenerateResponse VllmAnswer::End(const engine_v1::GenerateStreamChunk& last,
                                            const v1::Delta& delta) const {
  engine_v1::GenerateResponse response;
  engine_v1::GenerateComplete& complete = *response.mutable_complete();
  *complete.mutable_output_ids() = last.token_ids();
  complete.set_prompt_tokens(last.prompt_tokens());
  complete.set_completion_tokens(last.completion_tokens());
  complete.set_cached_tokens(last.cached_tokens());
  complete.set_index(last.index());
  if (last.has_output_logprobs()) *complete.mutable_output_logprobs() = last.output_logprobs();
  if (prompt_.token_ids_size() > 0) *complete.mutable_input_logprobs() = prompt_;
  complete.set_finish_reason(ReasonOf(delta.finish_reason()));
  if (delta.has_stop_sequence()) complete.set_matched_stop_str(delta.stop_sequence());
  if (delta.has_stop_token_id()) complete.set_matched_token_id(delta.stop_token_id());
  return response;
}

std::vector<engine_v1::GenerateResponse> VllmAnswer::Add(const v1::GenerateResponse& response) {
  AddPrompt(response);
  std::vector<engine_v1::GenerateResponse> answers;
  for (const v1::Delta& delta : response.deltas()) {
    engine_v1::GenerateResponse chunk = Chunk(delta);
    const bool is_end = delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
    if (form_.stream) answers.push_back(chunk);
    if (is_end) answers.push_back(End(chunk.chunk(), delta));
  }
  return answers;
}

engine_v1::EmbedResponse ToVllm(const v1::EmbedResponse& response) {
  engine_v1::EmbedResponse answer;
  if (response.embeddings_size() > 0) {
    *answer.mutable_embedding() = response.embeddings(0).values();
  }
  answer.set_embedding_dim(static_cast<uint32_t>(answer.embedding_size()));
  answer.set_prompt_tokens(response.usage().prompt_tokens());
  return answer;
}

}  // namespace continuo::server

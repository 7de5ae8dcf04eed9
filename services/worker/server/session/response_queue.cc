// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/response_queue.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/protocol/limits.h"
#include "services/worker/server/session/convert.h"

namespace continuo::server {
namespace {

// Room for the tags and lengths around each addition.
constexpr size_t kFrameBytes = 32;

// An upper bound of what the output takes on the wire. A part begins two Deltas at most.
size_t BytesOf(const AnswerSequence::Output& output) {
  return output.num_bytes() + protocol::kMaxStopStringBytes +
         (1 + 2 * output.parts().size()) * kFrameBytes;
}

}  // namespace

ResponseQueue::ResponseQueue(v1::Accepted accepted, uint64_t next_sequence, int num_sequences,
                             bool collect, const ServedModel* model)
    : accepted_(std::move(accepted)),
      next_sequence_(next_sequence),
      collect_(collect),
      model_(model),
      delta_of_(num_sequences, -1) {}

v1::GenerateResponse& ResponseQueue::Open(size_t bytes) {
  if (responses_.empty() ||
      (!collect_ && responses_.back().bytes + bytes > protocol::kMaxResponseBytes)) {
    v1::GenerateResponse& response = responses_.emplace_back().response;
    response.set_sequence(next_sequence_++);
    std::fill(delta_of_.begin(), delta_of_.end(), -1);
    size_t own = kFrameBytes;
    if (!accepted_sent_) {
      *response.mutable_accepted() = accepted_;
      own += kFrameBytes + accepted_.ByteSizeLong();
      accepted_sent_ = true;
    }
    responses_.back().bytes = own;
    bytes_ += own;
  }
  responses_.back().bytes += bytes;
  bytes_ += bytes;
  return responses_.back().response;
}

v1::Delta& ResponseQueue::OpenDelta(int index, size_t bytes) {
  v1::GenerateResponse& response = Open(bytes + kFrameBytes);
  int& place = delta_of_[index];
  if (place < 0) {
    place = response.deltas_size();
    response.add_deltas()->set_index(static_cast<uint32_t>(index));
  }
  return *response.mutable_deltas(place);
}

void ResponseQueue::AddStart() {
  if (!accepted_sent_) Open(0);
}

void ResponseQueue::AddProgress(const engine::PromptProgress& progress) {
  v1::Progress& proto = *Open(2 * kFrameBytes).mutable_progress();
  proto.set_queue_position(static_cast<uint32_t>(progress.queue_position));
  proto.set_prompt_tokens(static_cast<uint32_t>(progress.prompt_tokens));
  proto.set_prompt_tokens_done(static_cast<uint32_t>(progress.prompt_tokens_done));
  proto.set_cached_prompt_tokens(static_cast<uint32_t>(progress.cached_prompt_tokens));
}

void ResponseQueue::AddPromptToken(int32_t token) {
  v1::PromptToken proto;
  proto.set_token_id(static_cast<uint32_t>(token));
  SetToken(token, *model_, &proto);
  const size_t bytes = proto.token().size() + proto.special_token().size();
  *Open(bytes + kFrameBytes).add_prompt_tokens() = std::move(proto);
}

void ResponseQueue::AddPromptLogprob(int32_t token, const model::TokenScore& score) {
  v1::TokenLogprob logprob = ToProto(token, score, *model_);
  v1::GenerateResponse& response = Open(logprob.ByteSizeLong() + kFrameBytes);
  *response.add_prompt_logprobs() = std::move(logprob);
}

v1::Delta& ResponseQueue::DeltaFor(int index, DeltaPlace place) {
  v1::GenerateResponse& response = responses_.back().response;
  const v1::Delta& delta = response.deltas(delta_of_[index]);
  const int num_calls = delta.tool_calls_size();
  const DeltaPlace last = LastPlace(!delta.reasoning().empty(), !delta.text().empty(),
                                    num_calls > 0 && !delta.tool_calls(num_calls - 1).id().empty());
  if (!MayFollow(place, last)) {
    delta_of_[index] = response.deltas_size();
    response.add_deltas()->set_index(static_cast<uint32_t>(index));
  }
  return *response.mutable_deltas(delta_of_[index]);
}

void ResponseQueue::Append(int index, const AnswerSequence::Output& output,
                           const StopRules& rules) {
  for (const AnswerSequence::Said::Part& part : output.parts()) {
    const bool goes_on = !part.tool_calls.empty() && part.tool_calls.front().id().empty();
    if (goes_on) {
      v1::Delta& delta = DeltaFor(index, DeltaPlace::kOpenCall);
      const v1::ToolCall& call = part.tool_calls.front();
      const int last = delta.tool_calls_size() - 1;
      if (last >= 0) {
        delta.mutable_tool_calls(last)->mutable_arguments()->append(call.arguments());
      } else {
        *delta.add_tool_calls() = call;
      }
    }
    if (!part.reasoning.empty()) {
      DeltaFor(index, DeltaPlace::kReasoning).mutable_reasoning()->append(part.reasoning);
    }
    if (!part.text.empty()) {
      DeltaFor(index, DeltaPlace::kText).mutable_text()->append(part.text);
    }
    for (size_t i = goes_on ? 1 : 0; i < part.tool_calls.size(); ++i) {
      *DeltaFor(index, DeltaPlace::kCalls).add_tool_calls() = part.tool_calls[i];
    }
  }
  v1::Delta& delta = DeltaFor(index, DeltaPlace::kCalls);
  if (output.finish == v1::FINISH_REASON_UNSPECIFIED) return;
  delta.set_finish_reason(output.finish);
  if (output.matched_string >= 0) {
    delta.set_stop_sequence(rules.strings[output.matched_string]);
  } else if (output.matched_token_id >= 0) {
    delta.set_stop_token_id(static_cast<uint32_t>(output.matched_token_id));
  }
}

void ResponseQueue::AddToken(int index, int32_t token, const model::TokenScore* score,
                             const AnswerSequence::Output& output, const StopRules& rules) {
  v1::TokenLogprob logprob;
  if (score != nullptr) logprob = ToProto(token, *score, *model_);
  v1::Delta& delta = OpenDelta(index, BytesOf(output) + logprob.ByteSizeLong());
  delta.add_token_ids(static_cast<uint32_t>(token));
  if (score != nullptr) *delta.add_logprobs() = std::move(logprob);
  Append(index, output, rules);
}

void ResponseQueue::AddEnd(int index, const AnswerSequence::Output& output,
                           const StopRules& rules) {
  OpenDelta(index, BytesOf(output));
  Append(index, output, rules);
}

void ResponseQueue::AddSummary(v1::Summary summary) {
  CONTINUO_CHECK(!complete_);
  complete_ = true;
  *Open(summary.ByteSizeLong() + kFrameBytes).mutable_summary() = std::move(summary);
}

bool ResponseQueue::ready() const { return !responses_.empty() && (!collect_ || complete_); }

v1::GenerateResponse ResponseQueue::Pop() {
  CONTINUO_CHECK(ready());
  v1::GenerateResponse response = std::move(responses_.front().response);
  bytes_ -= responses_.front().bytes;
  responses_.pop_front();
  return response;
}

}  // namespace continuo::server

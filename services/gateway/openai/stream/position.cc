// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/position.h"

#include <algorithm>
#include <string>
#include <utility>

namespace continuo::gateway::openai {
namespace {

constexpr uint64_t kFnvBasis = 0xcbf29ce484222325, kFnvPrime = 0x100000001b3;

void Hash(std::string_view bytes, uint64_t* hash) {
  for (const char c : bytes) *hash = (*hash ^ static_cast<uint8_t>(c)) * kFnvPrime;
}

// Moves the first bytes of `text` to `to`.
void TakeBytes(uint64_t number, std::string* text, std::string* to) {
  const size_t taken = static_cast<size_t>(std::min<uint64_t>(number, text->size()));
  to->append(*text, 0, taken);
  text->erase(0, taken);
}

// The same for the elements of a repeated message field.
template <typename Field>
void TakeElements(uint64_t number, Field* field, Field* to) {
  const int taken = static_cast<int>(std::min<uint64_t>(number, field->size()));
  for (int i = 0; i < taken; ++i) to->Add()->Swap(field->Mutable(i));
  field->DeleteSubrange(0, taken);
}

// Adds a piece of a call to the one that it goes on with, or as a new one.
void AppendPiece(v1::ToolCall&& piece, v1::Delta* delta) {
  const int size = delta->tool_calls_size();
  if (size > 0 && piece.id().empty() && delta->tool_calls(size - 1).index() == piece.index()) {
    delta->mutable_tool_calls(size - 1)->mutable_arguments()->append(piece.arguments());
  } else {
    *delta->add_tool_calls() = std::move(piece);
  }
}

void TakeCalls(const Amount& amount, v1::Delta* delta, v1::Delta* to) {
  uint64_t calls = amount.of[Amount::kCalls], bytes = amount.of[Amount::kArguments];
  v1::Delta rest;
  for (v1::ToolCall& piece : *delta->mutable_tool_calls()) {
    v1::ToolCall first;
    first.set_index(piece.index());
    const bool begins = !piece.id().empty();
    if (begins && calls == 0) {
      *rest.add_tool_calls() = std::move(piece);
      // What follows is behind this call.
      bytes = 0;
      continue;
    }
    if (begins) {
      --calls;
      first.set_id(std::exchange(*piece.mutable_id(), ""));
      first.set_name(std::exchange(*piece.mutable_name(), ""));
    }
    const size_t before = piece.arguments().size();
    TakeBytes(bytes, piece.mutable_arguments(), first.mutable_arguments());
    bytes -= before - piece.arguments().size();
    if (begins || !first.arguments().empty()) AppendPiece(std::move(first), to);
    if (!piece.arguments().empty()) *rest.add_tool_calls() = std::move(piece);
  }
  delta->mutable_tool_calls()->Swap(rest.mutable_tool_calls());
}

void TakeFinish(v1::Delta* delta, v1::Delta* to) {
  to->set_finish_reason(delta->finish_reason());
  delta->clear_finish_reason();
  if (delta->has_stop_sequence()) to->set_stop_sequence(delta->stop_sequence());
  if (delta->has_stop_token_id()) to->set_stop_token_id(delta->stop_token_id());
  delta->clear_matched_stop();
}

}  // namespace

DeliveredHash::DeliveredHash() { hashes_.fill(kFnvBasis); }

void DeliveredHash::Add(const v1::GenerateResponse& batch) {
  for (const v1::Delta& delta : batch.deltas()) {
    for (const uint32_t id : delta.token_ids()) {
      hashes_[0] = (hashes_[0] ^ id) * kFnvPrime;
    }
    Hash(delta.text(), &hashes_[1]);
    Hash(delta.reasoning(), &hashes_[2]);
    for (const v1::ToolCall& call : delta.tool_calls()) {
      Hash(call.id(), &hashes_[3]);
      Hash(call.name(), &hashes_[3]);
      Hash(call.arguments(), &hashes_[3]);
    }
  }
}

uint32_t DeliveredHash::value() const {
  uint64_t mixed = 0;
  for (const uint64_t hash : hashes_) mixed = (mixed ^ hash) * kFnvPrime + (mixed >> 29);
  return static_cast<uint32_t>(mixed ^ (mixed >> 32));
}

Amount AmountOf(const v1::GenerateResponse& batch) {
  Amount amount;
  amount.of[Amount::kPromptTokens] = static_cast<uint64_t>(batch.prompt_tokens_size());
  amount.of[Amount::kPromptLogprobs] = static_cast<uint64_t>(batch.prompt_logprobs_size());
  if (batch.deltas_size() == 0) return amount;
  const v1::Delta& delta = batch.deltas(0);
  amount.of[Amount::kIds] = static_cast<uint64_t>(delta.token_ids_size());
  amount.of[Amount::kText] = delta.text().size();
  amount.of[Amount::kReasoning] = delta.reasoning().size();
  for (const v1::ToolCall& call : delta.tool_calls()) {
    if (!call.id().empty()) ++amount.of[Amount::kCalls];
    amount.of[Amount::kArguments] += call.arguments().size();
  }
  amount.of[Amount::kLogprobs] = static_cast<uint64_t>(delta.logprobs_size());
  amount.of[Amount::kFinish] = delta.finish_reason() == v1::FINISH_REASON_UNSPECIFIED ? 0 : 1;
  return amount;
}

v1::GenerateResponse TakeFirst(const Amount& amount, v1::GenerateResponse* batch) {
  v1::GenerateResponse first;
  TakeElements(amount.of[Amount::kPromptTokens], batch->mutable_prompt_tokens(),
               first.mutable_prompt_tokens());
  TakeElements(amount.of[Amount::kPromptLogprobs], batch->mutable_prompt_logprobs(),
               first.mutable_prompt_logprobs());
  if (batch->deltas_size() == 0) return first;
  v1::Delta& from = *batch->mutable_deltas(0);
  v1::Delta to;
  to.set_index(from.index());
  const int ids = static_cast<int>(
      std::min<uint64_t>(amount.of[Amount::kIds], static_cast<uint64_t>(from.token_ids_size())));
  to.mutable_token_ids()->Add(from.token_ids().begin(), from.token_ids().begin() + ids);
  from.mutable_token_ids()->erase(from.token_ids().begin(), from.token_ids().begin() + ids);
  TakeBytes(amount.of[Amount::kText], from.mutable_text(), to.mutable_text());
  TakeBytes(amount.of[Amount::kReasoning], from.mutable_reasoning(), to.mutable_reasoning());
  TakeCalls(amount, &from, &to);
  TakeElements(amount.of[Amount::kLogprobs], from.mutable_logprobs(), to.mutable_logprobs());
  if (amount.of[Amount::kFinish] > 0) TakeFinish(&from, &to);
  *first.add_deltas() = std::move(to);
  if (AmountOf(first).is_zero()) first.clear_deltas();
  if (AmountOf(*batch).is_zero()) batch->clear_deltas();
  return first;
}

void JoinPieces(v1::Delta* delta) {
  if (delta->tool_calls_size() < 2) return;
  v1::Delta joined;
  for (v1::ToolCall& piece : *delta->mutable_tool_calls()) AppendPiece(std::move(piece), &joined);
  delta->mutable_tool_calls()->Swap(joined.mutable_tool_calls());
}

void Append(v1::GenerateResponse&& batch, v1::GenerateResponse* to) {
  v1::GenerateResponse rest = std::move(batch);
  if (rest.deltas_size() > 0 && to->deltas_size() > 0) {
    v1::Delta& from = *rest.mutable_deltas(0);
    v1::Delta& whole = *to->mutable_deltas(0);
    whole.mutable_token_ids()->MergeFrom(from.token_ids());
    whole.mutable_text()->append(from.text());
    whole.mutable_reasoning()->append(from.reasoning());
    for (v1::ToolCall& piece : *from.mutable_tool_calls()) AppendPiece(std::move(piece), &whole);
    whole.mutable_logprobs()->MergeFrom(from.logprobs());
    if (from.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) TakeFinish(&from, &whole);
    rest.clear_deltas();
  }
  to->MergeFrom(rest);
}

}  // namespace continuo::gateway::openai

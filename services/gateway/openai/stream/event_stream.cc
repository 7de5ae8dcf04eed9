// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/event_stream.h"

#include <string_view>
#include <utility>

#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kEventEnd = "\n\n";
// How many ms an EventSource waits before it comes again. Other gateways take the stream at once;
// a browser by itself would wait for some seconds.
constexpr std::string_view kRetry = "\nretry: 1000";

absl::Status OtherGeneration() {
  return protocol::WithReason(
      absl::AbortedError("the stream cannot go on: the model's answer is another one now"),
      protocol::kReasonModelChanged);
}

// Takes the next event, without its end, from the front of `events`.
std::string_view NextEvent(std::string_view* events) {
  const size_t end = events->find(kEventEnd);
  const std::string_view event = events->substr(0, end);
  events->remove_prefix(end == std::string_view::npos ? events->size() : end + kEventEnd.size());
  return event;
}

Amount Minus(const Amount& all, const Amount& part) {
  Amount rest;
  for (size_t i = 0; i < all.of.size(); ++i) rest.of[i] = all.of[i] - part.of[i];
  return rest;
}

// True if something is in it beside what AmountOf counts.
bool HasMore(const v1::GenerateResponse& batch) {
  return batch.has_accepted() || batch.has_progress() || batch.has_summary();
}

}  // namespace

EventStream::EventStream(Answer* answer, const Shape& shape, std::unique_ptr<CursorSigner> signer,
                         Cursor begin, bool resumed)
    : answer_(answer),
      shape_(shape),
      signer_(std::move(signer)),
      resumed_(resumed),
      begin_(std::move(begin)),
      now_(begin_),
      num_to_skip_(begin_.num_skipped) {
  const int num_choices = shape.num_prompts * shape.num_sequences;
  units_.resize(num_choices == 1 ? 1 : static_cast<size_t>(num_choices + shape.num_prompts));
  if (signer_ != nullptr) signer_->SetGeneration(now_);
  now_.units.assign(units_.size(), {});
  now_.num_skipped = 0;
  now_.slice = {};
  now_.num_events = begin_.num_events - begin_.num_skipped;
  slice_done_ = begin_.slice.is_zero();
  for (size_t i = 0; resumed && i < units_.size() && i < begin_.units.size(); ++i) {
    units_[i].target = begin_.units[i].amount;
    units_[i].target_hash = begin_.units[i].hash;
    units_[i].is_replaying = !units_[i].target.is_zero();
    if (units_[i].is_replaying) ++num_replaying_;
    now_.units[i] = begin_.units[i];
  }
  if (resumed && num_replaying_ == 0) {
    answer_->set_num_events(static_cast<int64_t>(now_.num_events));
  }
}

size_t EventStream::UnitOf(int prompt, const v1::Delta* delta) const {
  if (units_.size() == 1) return 0;
  if (delta == nullptr) {
    return static_cast<size_t>(shape_.num_prompts * shape_.num_sequences + prompt);
  }
  return static_cast<size_t>(prompt) * shape_.num_sequences + delta->index();
}

void EventStream::OnAccepted(const v1::Accepted& accepted) {
  // What has no fingerprint is another thing each time, and so is what several have made.
  if (accepted.inexact() || accepted.fingerprint().empty()) now_.is_exact = false;
  const std::string_view fingerprint = ShortFingerprint(accepted.fingerprint());
  if (!std::exchange(has_fingerprint_, true)) {
    now_.fingerprint = fingerprint;
    if (signer_ != nullptr) signer_->SetGeneration(now_);
  } else if (now_.fingerprint != fingerprint) {
    now_.is_exact = false;
  }
}

absl::Status EventStream::Add(int prompt, v1::GenerateResponse response, std::string* events) {
  if (response.has_accepted()) {
    OnAccepted(response.accepted());
    if (resumed_ && (!now_.is_exact || now_.fingerprint != begin_.fingerprint)) {
      return OtherGeneration();
    }
  }
  for (v1::Delta& delta : *response.mutable_deltas()) JoinPieces(&delta);
  // Sequences that were not requested make no event.
  const auto is_known = [&](const v1::Delta& delta) {
    return delta.index() < static_cast<uint32_t>(shape_.num_sequences);
  };
  const int num_deltas = response.deltas_size();
  if (num_deltas == 0 || (num_deltas == 1 && units_.size() == 1 && is_known(response.deltas(0)))) {
    return AddBatch(prompt, UnitOf(prompt, nullptr), std::move(response), events);
  }
  v1::GenerateResponse head = std::move(response);
  google::protobuf::RepeatedPtrField<v1::Delta> deltas;
  deltas.Swap(head.mutable_deltas());
  v1::GenerateResponse tail;
  if (head.has_summary()) tail.mutable_summary()->Swap(head.mutable_summary());
  head.clear_summary();
  RETURN_IF_ERROR(AddBatch(prompt, UnitOf(prompt, nullptr), std::move(head), events));
  for (v1::Delta& delta : deltas) {
    if (!is_known(delta)) continue;
    const size_t unit = UnitOf(prompt, &delta);
    v1::GenerateResponse batch;
    batch.add_deltas()->Swap(&delta);
    RETURN_IF_ERROR(AddBatch(prompt, unit, std::move(batch), events));
  }
  if (!tail.has_summary()) return absl::OkStatus();
  return AddBatch(prompt, UnitOf(prompt, nullptr), std::move(tail), events);
}

absl::Status EventStream::AddBatch(int prompt, size_t number, v1::GenerateResponse batch,
                                   std::string* events) {
  Unit& unit = units_[number];
  if (unit.is_replaying) {
    RETURN_IF_ERROR(Replay(prompt, unit, &batch));
    if (AmountOf(batch).is_zero() && !HasMore(batch)) return SendHeld(events);
  }
  if (!slice_done_ && number == begin_.unit) {
    v1::GenerateResponse more = TakeFirst(Minus(begin_.slice, AmountOf(slice_)), &batch);
    if (batch.has_accepted()) more.mutable_accepted()->Swap(batch.mutable_accepted());
    if (batch.has_progress()) more.mutable_progress()->Swap(batch.mutable_progress());
    batch.clear_accepted();
    batch.clear_progress();
    Append(std::move(more), &slice_);
    if (AmountOf(slice_) != begin_.slice) return absl::OkStatus();
    slice_done_ = true;
    RETURN_IF_ERROR(Send(prompt, number, slice_, events));
    slice_.Clear();
    if (AmountOf(batch).is_zero() && !HasMore(batch)) return SendHeld(events);
  }
  RETURN_IF_ERROR(SendHeld(events));
  // What counts for nothing makes no event where there are several units.
  if (!is_replaying() || AmountOf(batch).is_zero()) return Send(prompt, number, batch, events);
  num_held_bytes_ += batch.ByteSizeLong() + sizeof(Held);
  held_.push_back({prompt, number, std::move(batch)});
  return absl::OkStatus();
}

absl::Status EventStream::SendHeld(std::string* events) {
  if (is_replaying()) return absl::OkStatus();
  num_held_bytes_ = 0;
  for (const Held& held : std::exchange(held_, {})) {
    RETURN_IF_ERROR(Send(held.prompt, held.unit, held.batch, events));
  }
  return absl::OkStatus();
}

absl::Status EventStream::Replay(int prompt, Unit& unit, v1::GenerateResponse* batch) {
  v1::GenerateResponse had = TakeFirst(Minus(unit.target, unit.amount), batch);
  if (batch->has_accepted()) had.mutable_accepted()->Swap(batch->mutable_accepted());
  if (batch->has_progress()) had.mutable_progress()->Swap(batch->mutable_progress());
  batch->clear_accepted();
  batch->clear_progress();
  unit.amount += AmountOf(had);
  unit.hash.Add(had);
  made_.clear();
  answer_->Add(prompt, had, &made_);
  if (unit.amount != unit.target) {
    // The rest of the batch comes behind what is still missing of another kind, or never.
    return AmountOf(*batch).is_zero() ? absl::OkStatus() : OtherGeneration();
  }
  if (unit.hash.value() != unit.target_hash) return OtherGeneration();
  unit.is_replaying = false;
  if (--num_replaying_ == 0) answer_->set_num_events(static_cast<int64_t>(now_.num_events));
  return absl::OkStatus();
}

absl::Status EventStream::Send(int prompt, size_t number, const v1::GenerateResponse& batch,
                               std::string* events) {
  if (signer_ == nullptr && !resumed_) {
    // Nobody asks where the stream is.
    answer_->Add(prompt, batch, events);
    return absl::OkStatus();
  }
  const Amount amount = AmountOf(batch);
  if (resumed_ && begin_.at_end && !amount.is_zero()) return OtherGeneration();
  const size_t begin = events->size();
  answer_->Add(prompt, batch, events);
  const std::string_view made = std::string_view(*events).substr(begin);
  if (made.empty()) {
    Deliver(number, amount, batch);
    return absl::OkStatus();
  }
  if (num_to_skip_ == 0 && made.find(kEventEnd) + kEventEnd.size() == made.size()) {
    // One event, as nearly always, stays where it is.
    Move(number, amount, batch, /*is_last=*/true);
    events->resize(events->size() - kEventEnd.size());
    EndEvent(events);
    return absl::OkStatus();
  }
  made_ = made;
  events->resize(begin);
  std::string_view left = made_;
  while (!left.empty()) {
    const std::string_view event = NextEvent(&left);
    Move(number, amount, batch, left.empty());
    if (resumed_ && !begin_.at_end && num_to_skip_ > 0 && number == begin_.unit) {
      --num_to_skip_;
    } else {
      AppendEvent(event, events);
    }
  }
  return absl::OkStatus();
}

void EventStream::Move(size_t number, const Amount& amount, const v1::GenerateResponse& batch,
                       bool is_last) {
  ++now_.num_events;
  if (is_last && !amount.is_zero()) {
    // Behind the last one the batch is delivered.
    Deliver(number, amount, batch);
    return;
  }
  now_.unit = static_cast<uint32_t>(number);
  now_.num_skipped = ++units_[number].num_events;
  now_.slice = amount;
}

void EventStream::Deliver(size_t number, const Amount& amount, const v1::GenerateResponse& batch) {
  if (amount.is_zero()) return;
  Unit& unit = units_[number];
  unit.amount += amount;
  unit.hash.Add(batch);
  unit.num_events = 0;
  now_.units[number] = {.amount = unit.amount, .hash = unit.hash.value()};
  now_.num_skipped = 0;
  now_.slice = {};
}

void EventStream::AppendEvent(std::string_view event, std::string* events) {
  events->append(event);
  EndEvent(events);
}

void EventStream::EndEvent(std::string* events) {
  // Some clients look for data at the begin of an event.
  if (signer_ != nullptr) {
    if (std::exchange(tells_retry_, false)) events->append(kRetry);
    events->append("\nid: ");
    signer_->Sign(now_, events);
  }
  events->append(kEventEnd);
}

absl::Status EventStream::AddEnd(std::string* events) {
  if (is_replaying()) return OtherGeneration();
  made_.clear();
  answer_->AddEnd(&made_);
  std::string_view left = made_;
  uint32_t num_skipped = 0;
  now_.at_end = true;
  now_.unit = 0;
  now_.slice = {};
  while (!left.empty()) {
    const std::string_view event = NextEvent(&left);
    ++now_.num_events;
    now_.num_skipped = ++num_skipped;
    now_.is_last = left.empty();
    if (resumed_ && begin_.at_end && num_skipped <= begin_.num_skipped) continue;
    AppendEvent(event, events);
  }
  return absl::OkStatus();
}

void EventStream::AddError(const absl::Status& status, std::string_view error,
                           std::string* events) {
  // Before its client's place a stream that goes on has made less than the client has had.
  if (is_replaying() || num_to_skip_ > 0 || (resumed_ && begin_.at_end)) {
    answer_->AddErrorAlone(status, error, static_cast<int64_t>(begin_.num_events), events);
  } else {
    answer_->AddError(status, error, events);
  }
}

}  // namespace continuo::gateway::openai

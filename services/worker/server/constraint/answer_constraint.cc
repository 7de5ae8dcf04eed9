// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/constraint/answer_constraint.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::server {
namespace {

using MatchState = text::Pattern::Match::State;

}  // namespace

absl::StatusOr<std::shared_ptr<AnswerConstraint>> AnswerConstraint::Create(
    std::shared_ptr<const text::Grammar> grammar, std::shared_ptr<const ThoughtMarks> marks,
    Thoughts thoughts, std::string field) {
  ASSIGN_OR_RETURN(std::unique_ptr<text::GrammarMatcher> matcher, grammar->NewMatcher());
  return std::shared_ptr<AnswerConstraint>(new AnswerConstraint(
      std::move(grammar), std::move(marks), std::move(matcher), thoughts, std::move(field)));
}

AnswerConstraint::AnswerConstraint(std::shared_ptr<const text::Grammar> grammar,
                                   std::shared_ptr<const ThoughtMarks> marks,
                                   std::unique_ptr<text::GrammarMatcher> matcher, Thoughts thoughts,
                                   std::string field)
    : grammar_(std::move(grammar)),
      marks_(std::move(marks)),
      field_(std::move(field)),
      matcher_(std::move(matcher)) {
  CONTINUO_CHECK(marks_ != nullptr || thoughts == Thoughts::kNone);
  if (thoughts == Thoughts::kPossible) state_.phase = Phase::kStart;
  if (thoughts == Thoughts::kOpen) state_.phase = Phase::kThought;
  Note();
}

void AnswerConstraint::Note() {
  if (!failure_.ok()) return;
  // It is the request's fault, and the same on every worker.
  const absl::Status status = matcher_->status();
  if (!status.ok()) failure_ = protocol::FieldError(field_, std::string(status.message()));
}

void AnswerConstraint::FillMask(std::span<uint32_t> mask) {
  if (!failure_.ok()) return;
  switch (state_.phase) {
    case Phase::kThought:
      marks_->ClearCrossing(state_.held, mask);
      return;
    case Phase::kAnswer:
      matcher_->FillMask(mask);
      return Note();
    case Phase::kStart:
    case Phase::kSpaces:
      break;
  }
  allowed_.assign(mask.begin(), mask.end());
  if (MayBeAnswer()) {
    matcher_->FillMask(mask);
    Note();
  } else {
    std::ranges::fill(mask, 0);
  }
  if (state_.phase == Phase::kStart) {
    marks_->AddOpening(state_.held, allowed_, mask);
  } else if (state_.num_spaces < kMaxSpaces) {
    marks_->AddSpaces(allowed_, mask);
  }
}

bool AnswerConstraint::CanEnd() {
  if (state_.phase == Phase::kThought || !MayBeAnswer()) return false;
  const bool can_end = matcher_->CanEnd();
  Note();
  return can_end;
}

bool AnswerConstraint::MustEnd() {
  // Instead of an answer that is complete before its first token there may be a thought.
  if (state_.phase == Phase::kThought || state_.phase == Phase::kStart) return false;
  const bool must_end = matcher_->MustEnd();
  Note();
  return must_end;
}

bool AnswerConstraint::Accept(int32_t id) {
  if (!failure_.ok()) return false;
  if (state_.phase == Phase::kAnswer) {
    if (!Match(id)) return false;
    ++num_answered_;
    return true;
  }
  const std::string_view bytes = marks_->BytesOf(id);
  if (bytes.empty()) return false;
  State old = state_;
  bool accepted = false;
  switch (state_.phase) {
    case Phase::kStart:
      accepted = AcceptAtStart(id);
      break;
    case Phase::kThought:
      accepted = AcceptInThought(bytes);
      break;
    case Phase::kSpaces:
      // White space that the grammar begins with belongs to it.
      accepted = Match(id);
      if (accepted) {
        state_ = {.phase = Phase::kAnswer};
      } else if (failure_.ok()) {
        accepted = AcceptSpace(bytes);
      }
      break;
    case Phase::kAnswer:
      break;
  }
  if (!accepted) return false;
  before_.push_back(std::move(old));
  if (before_.size() > kMaxRollback) before_.pop_front();
  return true;
}

bool AnswerConstraint::AcceptAtStart(int32_t id) {
  const std::string bytes = state_.held + std::string(marks_->BytesOf(id));
  const text::Pattern::Match match =
      marks_->open().MatchAt(bytes, /*at_start=*/true, /*at_end=*/false);
  if (match.state == MatchState::kMatch) {
    State old = std::exchange(state_, {.phase = Phase::kThought});
    if (!AcceptInThought(std::string_view(bytes).substr(match.length))) {
      state_ = std::move(old);
      return false;
    }
    Rematch({});
    return true;
  }
  const bool may_be_answer = MayBeAnswer();
  const bool matched = may_be_answer && Match(id);
  if (!failure_.ok()) return false;
  if (match.state == MatchState::kNone) {
    if (matched) state_ = {.phase = Phase::kAnswer};
    return matched;
  }
  state_.held = bytes;
  ++state_.num_begun;
  if (matched) state_.matched.push_back(id);
  return true;
}

bool AnswerConstraint::AcceptInThought(std::string_view bytes) {
  const text::Pattern& close = marks_->close();
  std::string held = state_.held + std::string(bytes);
  const std::string_view view = held;
  for (size_t at = 0; at < view.size(); ++at) {
    if (!close.MayBeginWith(view[at])) continue;
    const text::Pattern::Match match = close.MatchAt(view.substr(at), false, /*at_end=*/false);
    if (match.state == MatchState::kPending) {
      state_.held = held.substr(at);
      return true;
    }
    if (match.state != MatchState::kMatch) continue;
    const std::string_view rest = view.substr(at + match.length);
    if (!text::StripLeft(rest).empty()) return false;
    state_ = {.phase = Phase::kSpaces};
    return true;
  }
  state_.held.clear();
  return true;
}

bool AnswerConstraint::AcceptSpace(std::string_view bytes) {
  if (state_.num_spaces >= kMaxSpaces || !text::StripLeft(bytes).empty()) return false;
  ++state_.num_spaces;
  return true;
}

bool AnswerConstraint::Match(int32_t id) {
  const bool accepted = matcher_->Accept(id);
  Note();
  if (!accepted || !failure_.ok()) return false;
  matched_.push_back(id);
  return true;
}

void AnswerConstraint::Rematch(const std::vector<int32_t>& ids) {
  size_t common = 0;
  if (failure_.ok()) {
    common = static_cast<size_t>(std::ranges::mismatch(ids, matched_).in1 - ids.begin());
    matcher_->Rollback(static_cast<int>(matched_.size() - common));
    matched_.resize(common);
  } else {
    // A matcher that has failed stays failed at that place, so another one is led there.
    absl::StatusOr<std::unique_ptr<text::GrammarMatcher>> matcher = grammar_->NewMatcher();
    failure_ = matcher.status();
    if (!matcher.ok()) return;
    matcher_ = *std::move(matcher);
    matched_.clear();
  }
  for (size_t i = common; i < ids.size() && failure_.ok(); ++i) Match(ids[i]);
}

void AnswerConstraint::Rollback(int count) {
  const auto total = static_cast<size_t>(count);
  const size_t answered = std::min(total, num_answered_);
  num_answered_ -= answered;
  size_t left = total - answered;
  std::vector<int32_t> ids;
  if (left > 0) {
    CONTINUO_CHECK(left <= before_.size());
    state_ = std::move(before_[before_.size() - left]);
    before_.resize(before_.size() - left);
    ids = state_.matched;
  } else if (failure_.ok()) {
    matcher_->Rollback(static_cast<int>(answered));
    matched_.resize(matched_.size() - answered);
    return;
  } else {
    ids.assign(matched_.begin(), matched_.end() - static_cast<ptrdiff_t>(answered));
  }
  Rematch(ids);
}

}  // namespace continuo::server

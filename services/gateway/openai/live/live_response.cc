// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/live/live_response.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// What one reply has, about: a reader that begins late gets the rest in several.
constexpr size_t kMaxReplyBytes = 64 << 10;
// A reader has its part as a text and as what is being written.
constexpr int64_t kCopies = 2;
constexpr std::string_view kEventEnd = "\n\n";

absl::Status OtherRun(int64_t first_event) {
  return protocol::FieldError(
      "starting_after",
      absl::StrCat("the response went on after a cut, and its events before number ", first_event,
                   " were another run's; ask behind them, or send the request again with the id "
                   "of the last event as Last-Event-ID"));
}

}  // namespace

LiveResponse::LiveResponse(boost::asio::any_io_executor executor, const Retrievable* answer,
                           std::function<void()> cancel, ByteBudget* budget)
    : executor_(std::move(executor)),
      budget_(budget),
      answer_(answer),
      cancel_(std::move(cancel)),
      room_(budget) {}

void LiveResponse::AskEvents(int64_t first, std::weak_ptr<const void> reader, EventsReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), first, reader = std::move(reader),
                                reply = std::move(reply)]() mutable {
    self->Tell({first, std::move(reader), std::move(reply)});
  });
}

void LiveResponse::Snapshot(std::string_view status, const BodyReply& reply) const {
  Body body = {.text = answer_->Snapshot(status), .room = ByteBudget::Share(budget_)};
  if (!body.room.ResizeLeavingRoom(kCopies * static_cast<int64_t>(body.text.size()))) {
    return reply(protocol::OverloadedError("there is no room for the response so far"));
  }
  reply(std::move(body));
}

void LiveResponse::AskSnapshot(BodyReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), reply = std::move(reply)] {
    if (self->answer_ == nullptr) return reply(absl::NotFoundError("it has ended"));
    self->Snapshot("in_progress", reply);
  });
}

void LiveResponse::Cancel(BodyReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), reply = std::move(reply)] {
    if (self->answer_ == nullptr) return reply(absl::NotFoundError("it has ended"));
    self->Snapshot("cancelled", reply);
    self->cancel_();
  });
}

void LiveResponse::Tell(Waiting asked) {
  if (answer_ != nullptr && is_open_) Log(nullptr);
  if (answer_ == nullptr || !log_status_.ok() ||
      (is_open_ && (asked.first < first_logged_ || asked.first < end_of_log()))) {
    return asked.reply(Logged(asked.first));
  }
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.reader.expired(); });
  waiting_.push_back(std::move(asked));
}

void LiveResponse::OnProgress() {
  if (num_readers_ == 0) {
    waiting_.clear();
    ForgetLog();
    log_status_ = absl::OkStatus();
    return;
  }
  for (Waiting& waiting : std::exchange(waiting_, {})) Tell(std::move(waiting));
}

void LiveResponse::End(const absl::Status& status, std::string error) {
  if (answer_ == nullptr) return;
  if (!is_open_) {
    log_status_ = status;
  } else if (num_readers_ > 0) {
    const Retrievable::Ending ending = {status, std::move(error)};
    Log(&ending);
  }
  answer_ = nullptr;
  cancel_ = nullptr;
  teller_ = nullptr;
  for (Waiting& waiting : std::exchange(waiting_, {})) Tell(std::move(waiting));
}

void LiveResponse::Log(const Retrievable::Ending* ending) {
  if (!log_status_.ok()) return;
  if (teller_ == nullptr) {
    teller_ = answer_->MakeTeller();
    first_logged_ = answer_->first_event();
  }
  size_t at = log_.size();
  teller_->Tell(ending, &log_);
  while (at < log_.size()) {
    at = log_.find(kEventEnd, at) + kEventEnd.size();
    ends_.push_back(at);
  }
  const size_t bytes = log_.capacity() + ends_.capacity() * sizeof(size_t) + teller_->num_bytes();
  if (room_.ResizeLeavingRoom(static_cast<int64_t>(bytes))) return;
  ForgetLog();
  log_status_ = protocol::OverloadedError("there is no room for the events of the response");
}

void LiveResponse::ForgetLog() {
  teller_ = nullptr;
  log_ = {};
  ends_ = {};
  room_.Release();
}

absl::StatusOr<LiveResponse::Events> LiveResponse::Logged(int64_t first) const {
  if (!log_status_.ok()) return log_status_;
  if (first < first_logged_) return OtherRun(first_logged_);
  if (first >= end_of_log()) {
    return protocol::FieldError(
        "starting_after", absl::StrCat("the response ended before event ", first, ", with number ",
                                       // The end of a stream has no number.
                                       end_of_log() - 2));
  }
  const auto place = static_cast<size_t>(first - first_logged_);
  const size_t begin = place == 0 ? 0 : ends_[place - 1];
  const auto last = std::lower_bound(ends_.begin() + static_cast<std::ptrdiff_t>(place),
                                     ends_.end() - 1, begin + kMaxReplyBytes);
  Events events = {.text = log_.substr(begin, *last - begin),
                   .next = first_logged_ + (last - ends_.begin()) + 1,
                   .room = ByteBudget::Share(budget_)};
  events.is_last = answer_ == nullptr && events.next == end_of_log();
  if (!events.room.ResizeLeavingRoom(kCopies * static_cast<int64_t>(events.text.size()))) {
    return protocol::OverloadedError("there is no room for events of the response");
  }
  return events;
}

}  // namespace continuo::gateway::openai

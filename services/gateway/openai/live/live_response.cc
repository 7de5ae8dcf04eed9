// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/live/live_response.h"

#include <boost/asio/post.hpp>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// What one reply has, about: a reader that begins late gets the rest in several.
constexpr size_t kMaxReplyBytes = 64 << 10;
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
                           std::function<void()> cancel, ByteBudget* kept)
    : executor_(std::move(executor)),
      answer_(answer),
      cancel_(std::move(cancel)),
      room_(kept),
      kept_(std::string()) {}

void LiveResponse::AskEvents(int64_t first, EventsReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), first, reply = std::move(reply)] {
    self->Tell(first, reply);
  });
}

void LiveResponse::AskSnapshot(SnapshotReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), reply = std::move(reply)] {
    if (self->answer_ == nullptr) return reply(std::nullopt);
    reply(self->answer_->Snapshot("in_progress"));
  });
}

void LiveResponse::Cancel(SnapshotReply reply) {
  boost::asio::post(executor_, [self = shared_from_this(), reply = std::move(reply)] {
    if (self->answer_ == nullptr) return reply(std::nullopt);
    reply(self->answer_->Snapshot("cancelled"));
    self->cancel_();
  });
}

void LiveResponse::Tell(int64_t first, EventsReply reply) {
  if (answer_ == nullptr) return reply(KeptFrom(first));
  if (!is_open_) return waiting_.push_back({first, std::move(reply)});
  if (first < answer_->first_event()) return reply(OtherRun(answer_->first_event()));
  Retrievable::Events events = answer_->EventsFrom(first, nullptr, kMaxReplyBytes);
  if (events.text.empty()) {
    waiting_.push_back({first, std::move(reply)});
  } else {
    reply(std::move(events));
  }
}

void LiveResponse::OnProgress() {
  if (waiting_.empty()) return;
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    Tell(waiting.first, std::move(waiting.reply));
  }
}

void LiveResponse::End(const absl::Status& status, std::string error) {
  if (answer_ == nullptr) return;
  if (!is_open_) {
    kept_ = status;
  } else if (num_readers_ > 0) {
    const Retrievable::Ending ending = {status, std::move(error)};
    first_kept_ = answer_->first_event();
    kept_ = answer_->EventsFrom(first_kept_, &ending, std::numeric_limits<size_t>::max()).text;
    if (!room_.ResizeLeavingRoom(static_cast<int64_t>(kept_->size()))) {
      room_.Release();
      kept_ = protocol::OverloadedError("the end of the response could not be kept");
    }
  }
  answer_ = nullptr;
  cancel_ = nullptr;
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.reply(KeptFrom(waiting.first));
}

absl::StatusOr<Retrievable::Events> LiveResponse::KeptFrom(int64_t first) const {
  if (!kept_.ok()) return kept_.status();
  if (first < first_kept_) return OtherRun(first_kept_);
  std::string_view left = *kept_;
  for (int64_t number = first_kept_; number < first && !left.empty(); ++number) {
    left.remove_prefix(left.find(kEventEnd) + kEventEnd.size());
  }
  return Retrievable::Events{.text = std::string(left), .next = first, .is_last = true};
}

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/answer/retrievable.h"

namespace continuo::gateway::openai {

// One response while this gateway generates it, for those who ask for it by its id. Its answer
// belongs to the connection that generates it, on whose thread questions are answered; they may
// come from any thread.
class LiveResponse : public std::enable_shared_from_this<LiveResponse> {
 public:
  // One who reads. Events are kept while there is one.
  class Reader {
   public:
    explicit Reader(std::shared_ptr<LiveResponse> response) : response_(std::move(response)) {
      ++response_->num_readers_;
    }
    ~Reader() { --response_->num_readers_; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    LiveResponse& operator*() const { return *response_; }
    LiveResponse* operator->() const { return response_.get(); }

   private:
    const std::shared_ptr<LiveResponse> response_;
  };

  // Some events that follow one another, and their room while a reader has them.
  struct Events {
    std::string text;
    int64_t next = 0;      // the number of the event behind them
    bool is_last = false;  // there is none
    ByteBudget::Share room = {};
  };
  // The response as one body, and its room.
  struct Body {
    std::string text;
    ByteBudget::Share room = {};
  };

  // Calls are made on `executor`. `answer` lives until End; `cancel` ends the generation, and is
  // not called after End. `budget` bounds the events that are kept and what readers get; it
  // outlives this and all that readers get.
  LiveResponse(boost::asio::any_io_executor executor, const Retrievable* answer,
               std::function<void()> cancel, ByteBudget* budget);

  // From any thread. Each `reply` is called once, on the executor, or never where the reader has
  // left: where `reader`, which lives as long as he waits, has ended.
  //
  // The events from number `first` on, as soon as there is one, or the end. INVALID_ARGUMENT if the
  // first one is no event of this run, RESOURCE_EXHAUSTED if there is no room for events.
  using EventsReply = std::function<void(absl::StatusOr<Events>)>;
  void AskEvents(int64_t first, std::weak_ptr<const void> reader, EventsReply reply);
  // The response so far. NOT_FOUND if it has ended, RESOURCE_EXHAUSTED if there is no room.
  using BodyReply = std::function<void(absl::StatusOr<Body>)>;
  void AskSnapshot(BodyReply reply);
  // Ends the generation; the reply is the response as it is then.
  void Cancel(BodyReply reply);

  // On the executor, by the connection that generates it. Events are told from Open on.
  void Open() { is_open_ = true; }
  void OnProgress();
  // Nothing follows, and the answer may be destroyed. Later calls do nothing.
  void End(const absl::Status& status, std::string error);

 private:
  struct Waiting {
    int64_t first;
    std::weak_ptr<const void> reader;
    EventsReply reply;
  };

  void Tell(Waiting asked);
  // Adds what is new to the events. With an ending also those of that.
  void Log(const Retrievable::Ending* ending);
  void ForgetLog();
  // Some of the logged events, at least one, from number `first` on. There is one or an end.
  absl::StatusOr<Events> Logged(int64_t first) const;
  // The number of the event that is logged next.
  int64_t end_of_log() const { return first_logged_ + static_cast<int64_t>(ends_.size()); }
  void Snapshot(std::string_view status, const BodyReply& reply) const;

  const boost::asio::any_io_executor executor_;
  ByteBudget* const budget_;
  std::atomic<int> num_readers_ = 0;

  // Used on the executor alone.
  const Retrievable* answer_;
  std::function<void()> cancel_;
  bool is_open_ = false;
  std::vector<Waiting> waiting_;
  // The events that were told to somebody, with a place behind each; empty until somebody asks.
  std::unique_ptr<Retrievable::Teller> teller_;
  absl::Status log_status_;  // why there is none
  std::string log_;
  std::vector<size_t> ends_;
  int64_t first_logged_ = 0;
  ByteBudget::Share room_;  // of the log
};

}  // namespace continuo::gateway::openai

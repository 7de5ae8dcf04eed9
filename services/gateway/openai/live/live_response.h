// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  // One who reads the events. While there is one, the end of the response is kept.
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

  // Calls are made on `executor`. `answer` lives until End; `cancel` ends the generation, and is
  // not called after End. `kept` bounds what is kept behind the end, and outlives this.
  LiveResponse(boost::asio::any_io_executor executor, const Retrievable* answer,
               std::function<void()> cancel, ByteBudget* kept);

  // From any thread. Each `reply` is called once, on the executor.
  //
  // The events from number `first` on, as soon as there is one, or the end. INVALID_ARGUMENT if the
  // first one is no event of this run, RESOURCE_EXHAUSTED if the rest could not be kept.
  using EventsReply = std::function<void(absl::StatusOr<Retrievable::Events>)>;
  void AskEvents(int64_t first, EventsReply reply);
  // The response so far; nothing if it has ended.
  using SnapshotReply = std::function<void(std::optional<std::string>)>;
  void AskSnapshot(SnapshotReply reply);
  // Ends the generation; the reply is the response as it is then.
  void Cancel(SnapshotReply reply);

  // On the executor, by the connection that generates it. Events are told from Open on.
  void Open() { is_open_ = true; }
  void OnProgress();
  // Nothing follows, and the answer may be destroyed. Calls after the first one do nothing.
  void End(const absl::Status& status, std::string error);

 private:
  struct Waiting {
    int64_t first;
    EventsReply reply;
  };

  void Tell(int64_t first, EventsReply reply);
  // The events of an ended response.
  absl::StatusOr<Retrievable::Events> KeptFrom(int64_t first) const;

  const boost::asio::any_io_executor executor_;
  std::atomic<int> num_readers_ = 0;

  // Used on the executor alone.
  const Retrievable* answer_;
  std::function<void()> cancel_;
  bool is_open_ = false;
  std::vector<Waiting> waiting_;
  ByteBudget::Share room_;
  absl::StatusOr<std::string> kept_;  // the events from first_kept_ to the end
  int64_t first_kept_ = 0;
};

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/relay_client.h"

namespace continuo::gateway {

// Bounds of the responses that wait for a slow client. The worker's stream is not read while one of
// them is reached.
struct ClientOutboxOptions {
  size_t max_bytes = 64 << 10;
  size_t max_responses = 16;
};

// The queue of responses towards one client, which takes one at a time. Belongs to the thread that
// handles the relay's events.
class ClientOutbox {
 public:
  // `client` outlives the outbox or is not written to after its Finish.
  ClientOutbox(const ClientOutboxOptions& options, RelayClient* client)
      : options_(options), client_(client) {}

  void Push(v1::GenerateResponse response);
  // Drops the responses that have not been written.
  void Clear();
  // Writes the next response, unless none waits or the client has not taken the last one.
  void WriteNext();
  // Writes the response that waits, if one does, and the end. Called where can_end; the last use of
  // the outbox and of the client.
  void WriteEnd(const absl::Status& status, const RelayReport& report);
  // The client has taken the response that was written last.
  void OnWritten() { is_writing_ = false; }

  size_t num_waiting() const { return waiting_.size(); }
  // False if the worker's stream must not be read.
  bool has_room() const;
  // True if the client has taken everything but one response.
  bool can_end() const { return !is_writing_ && waiting_.size() <= 1; }

 private:
  const ClientOutboxOptions options_;
  RelayClient* const client_;
  std::deque<v1::GenerateResponse> waiting_;
  size_t waiting_bytes_ = 0;
  bool is_writing_ = false;
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>

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
  // The client has taken the response that was written last.
  void OnWritten() { is_writing_ = false; }

  // False if the worker's stream must not be read.
  bool has_room() const;
  // True if the client has taken everything.
  bool is_empty() const { return !is_writing_ && waiting_.empty(); }

 private:
  const ClientOutboxOptions options_;
  RelayClient* const client_;
  std::deque<v1::GenerateResponse> waiting_;
  size_t waiting_bytes_ = 0;
  bool is_writing_ = false;
};

}  // namespace continuo::gateway

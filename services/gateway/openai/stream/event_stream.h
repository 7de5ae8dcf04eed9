// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/stream/cursor_signer.h"
#include "services/gateway/openai/stream/position.h"

namespace continuo::gateway::openai {

// The events of one HTTP stream, each with an id from which the stream can go on: a signed cursor.
// Streams for clients that do not expect ids have none.
// A stream that goes on is generated again from its begin. What its client has had makes no event
// again; it is compared with the cursor, and another answer ends the stream. Not thread-safe.
//
// Responses are divided into batches, one for each delta, which belong to units: choices and, where
// there are several, the prompts. The events that a batch makes follow from what was delivered of
// its unit before it and from the batch, so a cursor between two of them names both.
class EventStream {
 public:
  struct Shape {
    int num_prompts = 1;
    int num_sequences = 1;  // of each prompt
  };

  // `answer` outlives the stream. Without a signer events have no ids. `begin` names the
  // generation; with `resumed` it is the cursor behind which the stream goes on.
  EventStream(Answer* answer, const Shape& shape, std::unique_ptr<CursorSigner> signer,
              Cursor begin, bool resumed);

  // The next event that has an id also tells an EventSource how soon it may come again.
  void TellRetry() { tells_retry_ = true; }
  // Appends the events of the next response to a prompt. ABORTED, with a reason, if the stream
  // cannot go on since this is another generation than the one before.
  absl::Status Add(int prompt, v1::GenerateResponse response, std::string* events);
  // Appends the last events; as Answer::AddEnd.
  absl::Status AddEnd(std::string* events);
  // As Answer::AddError, or AddErrorAlone until all that the client has had was made again. Events
  // of an error have no id: the client goes on behind the one before.
  void AddError(const absl::Status& status, std::string_view error, std::string* events);

  // The memory of what waits.
  size_t num_bytes() const { return num_held_bytes_; }
  // True until all that the client has had was generated again.
  bool is_replaying() const { return num_replaying_ > 0 || !slice_done_; }

 private:
  struct Unit {
    Amount amount;  // was added to the answer
    DeliveredHash hash;
    Amount target;  // has to be, before events of this unit are sent
    uint32_t target_hash = 0;
    bool is_replaying = false;
    uint32_t num_events = 0;  // since `amount` was reached
  };

  absl::Status AddBatch(int prompt, size_t unit, v1::GenerateResponse batch, std::string* events);
  // Sends what waited for the end of the replay.
  absl::Status SendHeld(std::string* events);
  // Adds the part of the batch that the client has had; the rest stays.
  absl::Status Replay(int prompt, Unit& unit, v1::GenerateResponse* batch);
  // Adds a batch and appends its events, other than those that the client has had.
  absl::Status Send(int prompt, size_t unit, const v1::GenerateResponse& batch,
                    std::string* events);
  void OnAccepted(const v1::Accepted& accepted);
  size_t UnitOf(int prompt, const v1::Delta* delta) const;
  void Deliver(size_t unit, const Amount& amount, const v1::GenerateResponse& batch);
  // Moves the cursor behind the next event that a batch of this amount makes.
  void Move(size_t unit, const Amount& amount, const v1::GenerateResponse& batch, bool is_last);
  // Appends one event of the answer with its id.
  void AppendEvent(std::string_view event, std::string* events);
  // Ends an event, whose lines are there, with its id.
  void EndEvent(std::string* events);

  Answer* const answer_;
  const Shape shape_;
  const std::unique_ptr<CursorSigner> signer_;
  const bool resumed_;
  const Cursor begin_;
  Cursor now_;  // its units are those below, without what is being added
  std::vector<Unit> units_;
  size_t num_replaying_ = 0;
  bool slice_done_ = true;
  v1::GenerateResponse slice_;  // as far as it has come
  uint32_t num_to_skip_ = 0;    // events of begin_.unit
  // Batches of other units that came while the stream is replaying. Their events wait, since a
  // cursor tells of one unit alone that it is between two events.
  struct Held {
    int prompt;
    size_t unit;
    v1::GenerateResponse batch;
  };
  std::vector<Held> held_;
  size_t num_held_bytes_ = 0;
  bool has_fingerprint_ = false;
  bool tells_retry_ = false;
  std::string made_;  // events of a batch
};

}  // namespace continuo::gateway::openai

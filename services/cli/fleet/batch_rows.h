// SPDX-License-Identifier: Apache-2.0
#pragma once

// A worker's batch as rows: each running sequence keeps one row until its end, and the next one
// takes the first row that is free. Made from the steps that WatchSteps tells; no clock.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"

namespace continuo::cli {

struct BatchRow {
  enum class State {
    kReading,  // its prompt
    kGenerating,
    kPreempted,  // gave its blocks back; it will be computed again
    kEnded,      // as `finish` says
    kGone,       // left without a last step: cancelled, aborted or handed over
  };
  std::string name;  // The request's id, "#" and the index of a further sequence; plain ASCII.
  State state = State::kReading;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // Of the prompt, when it was first seen.
  uint64_t read_tokens = 0;    // Of the prompt, in the KV cache after the last step.
  uint64_t generated_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;

  bool running() const { return state == State::kReading || state == State::kGenerating; }
  bool free() const { return state == State::kEnded || state == State::kGone; }
};

// "length", "stop"; of values that this program does not know their number.
std::string FinishName(v1::FinishReason reason);

// Every character that is not printable ASCII becomes '?', and what is longer than `width` is cut.
std::string PlainText(std::string_view text, size_t width);

absl::Time TimeOf(const google::protobuf::Timestamp& time);
// Cut to [0, one day].
absl::Duration DurationOf(const google::protobuf::Duration& duration);

class BatchRows {
 public:
  static constexpr size_t kMaxRows = 4096;
  static constexpr size_t kNoRow = static_cast<size_t>(-1);  // more than that at once
  // A sequence that is in none of so many steps, for so long, is gone. Steps may leave running ones
  // out for a while: each takes only so many rows of prompts.
  static constexpr uint64_t kMissedSteps = 20;
  static constexpr absl::Duration kMissedFor = absl::Seconds(2);
  // One that was preempted waits for room.
  static constexpr absl::Duration kPreemptedFor = absl::Seconds(60);

  // The row of each of the step's sequences.
  std::vector<size_t> Take(const v1::Step& step);
  // Nothing runs or waits any more, whatever the steps told.
  void Leave();
  // Forgets everything: another process answers.
  void Clear() { *this = BatchRows(); }

  const std::vector<BatchRow>& rows() const { return rows_; }
  size_t num_running() const;

 private:
  // The request's id, the sequence's index, and which of several such in one step: ids are unique
  // only for each tenant.
  using Key = std::tuple<std::string, uint32_t, int>;
  struct Seen {
    Key key;
    uint64_t step = 0;
    absl::Time time;
  };

  size_t RowOf(const Key& key);

  std::vector<BatchRow> rows_;
  std::vector<Seen> seen_;  // of each row
  std::map<Key, size_t> row_of_;
};

}  // namespace continuo::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

// A worker's batch as rows, made from the steps of WatchSteps: each running sequence keeps one row
// until its end, and a new one takes the first free row. Uses no clock.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"

namespace continuo::cli {

// One sequence.
struct BatchRow {
  enum class State {
    kPrefill,
    kGenerating,
    kPreempted,  // Its blocks were freed; it will be computed again.
    kEnded,      // `finish` says why.
    kGone,       // It left without a last step: it was cancelled, aborted or migrated.
  };
  // The request's id, with "#" and the index for further sequences of a request. Plain ASCII.
  std::string name;
  State state = State::kPrefill;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;     // Prompt tokens from the prefix cache, at its first step.
  uint64_t prefilled_tokens = 0;  // Prompt tokens in the KV cache after the last step.
  uint64_t generated_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;

  bool running() const { return state == State::kPrefill || state == State::kGenerating; }
  bool free() const { return state == State::kEnded || state == State::kGone; }
};

// Formats "length" or "stop"; an unknown value as its number.
std::string FinishName(v1::FinishReason reason);

// Replaces every byte that is not printable ASCII by '?' and cuts the text to `width`.
std::string PlainText(std::string_view text, size_t width);

absl::Time TimeOf(const google::protobuf::Timestamp& time);
// Cut to [0, one day].
absl::Duration DurationOf(const google::protobuf::Duration& duration);

// The rows of a batch. Not thread-safe.
class BatchRows {
 public:
  static constexpr size_t kMaxRows = 4096;
  static constexpr size_t kNoRow = static_cast<size_t>(-1);  // The sequence got no row.
  // A sequence that was in none of the last kMissedSteps steps, for kMissedFor, is gone. Steps may
  // leave running sequences out for a while, as their prompt tokens are limited.
  static constexpr uint64_t kMissedSteps = 20;
  static constexpr absl::Duration kMissedFor = absl::Seconds(2);
  // A preempted sequence may wait longer for free blocks.
  static constexpr absl::Duration kPreemptedFor = absl::Seconds(60);

  // Updates the rows with a step. Returns the row of each of its sequences.
  std::vector<size_t> Take(const v1::Step& step);
  // Marks all rows as gone: the worker reports that nothing runs or waits.
  void Leave();
  // Forgets everything: another process answers.
  void Clear() { *this = BatchRows(); }

  const std::vector<BatchRow>& rows() const { return rows_; }
  size_t num_running() const;

 private:
  // The request's id, the sequence's index, and its place among equal ones in the step: ids are
  // unique only within a tenant.
  using Key = std::tuple<std::string, uint32_t, int>;
  struct Seen {
    Key key;
    uint64_t step = 0;
    absl::Time time;
  };

  // The row of a sequence of step number `step`.
  size_t RowOf(const Key& key, uint64_t step);

  std::vector<BatchRow> rows_;
  std::vector<Seen> seen_;  // By row: when its sequence was last in a step.
  std::map<Key, size_t> row_of_;
};

}  // namespace continuo::cli

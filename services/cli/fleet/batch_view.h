// SPDX-License-Identifier: Apache-2.0
#pragma once

// The picture of `continuo top`, as a function of the worker's messages. Uses no clock and no
// terminal.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/cli/fleet/batch_rows.h"

namespace continuo::cli {

// The state of a worker, and its picture. Not thread-safe.
class BatchView {
 public:
  void Take(const v1::WatchStepsResponse& response);
  void Take(const v1::WatchLoadResponse& load);
  // A stream ended or could not be opened.
  void LoseSteps(const absl::Status& why);
  void LoseLoad(const absl::Status& why);

  // Draws at most `height` lines of plain ASCII, each of at most `width` characters and a newline:
  // two lines of the worker, then one for each row of the batch. `address` names the worker until
  // it reports its name.
  std::string Draw(const std::string& address, size_t width, size_t height) const;

  const BatchRows& batch() const { return batch_; }

 private:
  struct StepTime {
    absl::Time start;
    absl::Duration duration;
  };

  std::string Header(const std::string& address) const;
  // The median and the longest duration of the steps in the last second that had steps.
  std::string StepTimes() const;

  BatchRows batch_;
  std::optional<v1::WatchLoadResponse> load_;
  absl::Status steps_status_, load_status_;
  uint64_t last_step_ = 0, num_dropped_ = 0;
  std::deque<StepTime> recent_;
};

}  // namespace continuo::cli

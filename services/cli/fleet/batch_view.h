// SPDX-License-Identifier: Apache-2.0
#pragma once

// What `continuo top` knows of a worker, and the picture of it. No clock, no terminal.

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

class BatchView {
 public:
  void Take(const v1::WatchStepsResponse& response);
  void Take(const v1::WatchLoadResponse& load);
  void LoseSteps(const absl::Status& why);
  void LoseLoad(const absl::Status& why);

  // Lines of plain ASCII, each of at most `width` characters and a newline, at most `height` of
  // them: two lines of the worker, then one for each row of the batch. `address` names the worker
  // where it is not known yet.
  std::string Draw(const std::string& address, size_t width, size_t height) const;

  const BatchRows& batch() const { return batch_; }

 private:
  struct StepTime {
    absl::Time start;
    absl::Duration duration;
  };

  std::string Header(const std::string& address) const;
  // Of the steps of the last second in which there were any.
  std::string StepTimes() const;

  BatchRows batch_;
  std::optional<v1::WatchLoadResponse> load_;
  absl::Status steps_status_, load_status_;
  uint64_t last_step_ = 0, num_dropped_ = 0;
  std::deque<StepTime> recent_;
};

}  // namespace continuo::cli

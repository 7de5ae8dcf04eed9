// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes steps and requests as a trace that ui.perfetto.dev and chrome://tracing open: JSON in the
// "Trace Event Format" of the Chromium project
// (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Uses no clock and no
// files.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/cli/fleet/batch_rows.h"

namespace continuo::cli {

// The trace has two processes. "steps" has one slice for each step, and counters of sequences,
// waiting requests, computed tokens and KV blocks. "batch" has a thread for each row of the batch,
// with a slice for each step that prefills a part of a request's prompt, and one for all that the
// request generates. Not thread-safe.
class StepTrace {
 public:
  static constexpr uint64_t kMinBytes = 64 << 10;

  // Limits the size of the whole text; `max_bytes` is raised to kMinBytes.
  explicit StepTrace(uint64_t max_bytes);

  void Take(const v1::WatchStepsResponse& response);
  // The worker is gone, and all its sequences end here.
  void Lose(std::string_view why);
  // Ends the text, with the names of the worker and of the reason. Nothing is taken after it.
  void End(std::string_view worker, std::string_view reason);

  // Returns the text that was added since the last call.
  std::string TakeText();

  // No further event fits.
  bool full() const { return full_; }
  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_requests() const { return num_requests_; }
  uint64_t num_dropped() const { return num_dropped_; }  // Steps that the worker left out.
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  // The generation of a row, since its prefill or since its return after a preemption.
  struct Generation {
    bool open = false;
    std::string name;
    int64_t begin = 0, end = 0;  // In ns.
    uint64_t before = 0, generated = 0;
    uint64_t num_steps = 0;
  };

  // Returns false where the event does not fit; then all further events are left out, too.
  bool Add(std::string_view event);
  void AddMetadata(std::string_view name, int process, size_t thread, std::string_view value);
  void AddInstant(std::string_view name, int64_t at);
  void AddCounters(const v1::Step& step, uint64_t prefill, uint64_t decode, int64_t begin);
  void TakeStep(const v1::Step& step);
  void TakeSequence(const v1::StepSequence& s, size_t row, int64_t begin, int64_t end);
  void Close(size_t row, std::string_view why);

  const uint64_t max_bytes_;
  uint64_t num_bytes_ = 0, num_steps_ = 0, num_requests_ = 0, num_dropped_ = 0;
  bool full_ = false, first_ = true;
  std::string text_;
  BatchRows batch_;
  std::vector<Generation> generations_;  // By row.
  std::map<std::string, std::string> counters_;
  absl::Time origin_ = absl::InfinitePast();  // The start of the first step.
  int64_t last_end_ = 0;                      // The end of the last step, in ns since then.
};

}  // namespace continuo::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Steps and requests as a trace that ui.perfetto.dev and chrome://tracing open: JSON in the "Trace
// Event Format" of the Chromium project
// (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). No clock, no files.

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

// Two processes in the picture. "steps": one slice a step, and counters of sequences, waiting
// requests, rows computed and KV blocks. "batch": a thread for each row of the batch; on it each
// request has a slice for every step that reads of its prompt and one for all that it generates.
class StepTrace {
 public:
  static constexpr uint64_t kMinBytes = 64 << 10;

  // The whole text is at most `max_bytes` long, which is at least kMinBytes.
  explicit StepTrace(uint64_t max_bytes);

  void Take(const v1::WatchStepsResponse& response);
  // The worker is gone: what runs ends here.
  void Lose(std::string_view why);
  // The end of the text. `worker` and `reason` are told in it; nothing can be taken after it.
  void End(std::string_view worker, std::string_view reason);

  // What is new of the text since the last call.
  std::string TakeText();

  // Nothing more fits.
  bool full() const { return full_; }
  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_requests() const { return num_requests_; }
  uint64_t num_dropped() const { return num_dropped_; }  // steps that the worker did not tell
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  // What a row generates, since its prompt was read or its request came back.
  struct Generation {
    bool open = false;
    std::string name;
    int64_t begin = 0, end = 0;  // ns
    uint64_t before = 0, generated = 0;
    uint64_t num_steps = 0;
  };

  // False where the event does not fit any more; every event then is left out.
  bool Add(std::string_view event);
  void AddMetadata(std::string_view name, int process, size_t thread, std::string_view value);
  void AddInstant(std::string_view name, int64_t at);
  void AddCounters(const v1::Step& step, uint64_t read, uint64_t generating, int64_t begin);
  void TakeStep(const v1::Step& step);
  void TakeSequence(const v1::StepSequence& s, size_t row, int64_t begin, int64_t end);
  void Close(size_t row, std::string_view why);

  const uint64_t max_bytes_;
  uint64_t num_bytes_ = 0, num_steps_ = 0, num_requests_ = 0, num_dropped_ = 0;
  bool full_ = false, first_ = true;
  std::string text_;
  BatchRows batch_;
  std::vector<Generation> generations_;  // of each row
  std::map<std::string, std::string> counters_;
  absl::Time origin_ = absl::InfinitePast();  // the first step's start
  int64_t last_end_ = 0;                      // ns since then
};

}  // namespace continuo::cli

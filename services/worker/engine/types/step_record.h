// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/types/request.h"

namespace continuo::engine {

// Describes one step without its token ids; WatchSteps is made from it. A value.
struct StepRecord {
  struct SequenceRow {
    std::string label;  // the client's request_id
    int index = 0;
    int prompt_tokens = 0, cached_tokens = 0, new_tokens = 0, generated_tokens = 0;
    bool preempted = false;
    FinishReason finish = FinishReason::kNone;
  };
  uint64_t number = 0;
  absl::Time start;
  absl::Duration duration;
  std::vector<SequenceRow> sequences;
  int waiting = 0, used_blocks = 0;
};

}  // namespace continuo::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace continuo::simulate {

// One request of a load.
struct PlannedRequest {
  uint64_t index = 0;
  absl::Duration arrival;  // since the begin of the load; in a closed loop of no meaning
  uint32_t prompt_tokens = 1, output_tokens = 1;
  std::string tenant = "default";
  std::string session;  // x-session-id
  int32_t priority = 0;
};

// The requests of a simulation, in the order of their arrivals.
class Load {
 public:
  virtual ~Load() = default;
  // Nothing after the last one.
  virtual std::optional<PlannedRequest> Next() = 0;
  // Ids below kVocabularySize; a function of the request.
  virtual std::vector<uint32_t> PromptIds(const PlannedRequest& request) = 0;
};

}  // namespace continuo::simulate

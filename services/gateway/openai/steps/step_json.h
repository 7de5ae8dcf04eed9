// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "continuo/v1/worker.pb.h"
#include "services/gateway/routing/worker_load.h"

namespace continuo::gateway::openai {

// Shortens the ids of requests for watchers, who may be of other tenants. Immutable; thread-safe.
class StepIds {
 public:
  // Draws a random key.
  StepIds();

  // Of an id that a gateway has made of random bits, eight digits, too few to name the request by:
  // its owner knows it again. Of any other, which may say something of its tenant, a keyed hash.
  // What follows the digits of a gateway's id, such as "-1" of a second prompt, is kept.
  std::string Short(std::string_view request_id) const;

 private:
  std::array<uint8_t, 16> key_;
};

// {"number","start","seconds","waiting","kv_blocks_used","sequences":[{"id","prompt_tokens",
// "cached_tokens","new_tokens","generated_tokens"} …]}. A sequence also has "index" where it is not
// the first of its request, "preempted" where it was, and "finish" in its last step. "start" is in
// Unix seconds.
std::string StepJson(const v1::Step& step, const StepIds& ids);

// {"worker","model","max_running","kv_blocks_total","block_size_tokens"}.
std::string WatchedWorkerJson(const WorkerLoad& load);

}  // namespace continuo::gateway::openai

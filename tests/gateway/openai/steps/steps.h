// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "continuo/v1/worker.pb.h"

namespace continuo::gateway::openai {

// An id as gateways make it.
inline std::string MadeId(int number) {
  return absl::StrCat("req-", absl::Hex(number, absl::kZeroPad8), std::string(24, 'f'));
}

// A step with `num_sequences` requests that each generate a token.
inline v1::Step StepOf(uint64_t number, int num_sequences = 1) {
  v1::Step step;
  step.set_number(number);
  step.mutable_start_time()->set_seconds(1'700'000'000);
  step.mutable_start_time()->set_nanos(250'000'000);
  step.mutable_duration()->set_nanos(20'000'000);
  step.set_waiting_requests(2);
  step.set_used_kv_blocks(7);
  for (int i = 0; i < num_sequences; ++i) {
    v1::StepSequence& sequence = *step.add_sequences();
    sequence.set_request_id(MadeId(i));
    sequence.set_prompt_tokens(10);
    sequence.set_cached_tokens(10 + number);
    sequence.set_new_tokens(1);
    sequence.set_generated_tokens(number);
  }
  return step;
}

inline v1::WatchStepsResponse StepsOf(std::vector<v1::Step> steps, uint64_t num_dropped = 0) {
  v1::WatchStepsResponse response;
  for (v1::Step& step : steps) *response.add_steps() = std::move(step);
  response.set_num_dropped(num_dropped);
  return response;
}

// The steps that one watcher got, added up.
struct SeenSteps {
  uint64_t num_steps = 0, num_dropped = 0, last = 0;
  bool in_order = true;

  void Add(const nlohmann::json& event) {
    num_dropped += event["dropped"].get<uint64_t>();
    for (const auto& step : event["steps"]) {
      const uint64_t number = step["number"];
      in_order = in_order && number > last;
      last = number;
      ++num_steps;
    }
  }
};

}  // namespace continuo::gateway::openai

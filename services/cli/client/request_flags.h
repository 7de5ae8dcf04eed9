// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/common/flags.h"

namespace continuo::cli {

// The flags of a generation. Unset ones are left to the model's defaults.
struct RequestFlags {
  std::string model, request_id;
  std::optional<uint32_t> max_tokens, min_tokens, top_k, num_sequences;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<int32_t> priority;
  std::vector<std::string> stop;
  bool include_stop = false, ignore_eos = false, exact_only = false;
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration reconnect_for = absl::Seconds(60);
  absl::Duration first_backoff = absl::Milliseconds(100);  // Not a flag.
};

// Adds all flags but --request_id and --n, which only `generate` has.
void AddRequestFlags(common::Flags& flags, RequestFlags* values);

// The request without its prompt.
v1::GenerateRequest MakeRequest(const RequestFlags& flags);

}  // namespace continuo::cli

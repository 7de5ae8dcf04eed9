// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "services/simulate/load.h"
#include "services/simulate/worker/answer.h"

namespace continuo::simulate {

// Poisson arrivals of requests with random prompts.
class RandomLoad : public Load {
 public:
  // `rate` is in requests a second; the arrivals are all at once if it is 0.
  RandomLoad(uint64_t seed, uint64_t requests, double rate)
      : random_(seed), requests_(requests), rate_(rate) {}

  std::optional<PlannedRequest> Next() override {
    if (next_ == requests_) return std::nullopt;
    PlannedRequest request = {.index = next_++, .arrival = arrival_};
    if (rate_ > 0) arrival_ += absl::Seconds(-std::log1p(-Unit()) / rate_);
    request.prompt_tokens = prompt_tokens;
    request.output_tokens = output_tokens;
    if (edit) edit(request, random_);
    return request;
  }
  std::vector<uint32_t> PromptIds(const PlannedRequest& request) override {
    std::mt19937_64 ids(request.index);
    std::vector<uint32_t> prompt(request.prompt_tokens);
    for (uint32_t& id : prompt) id = static_cast<uint32_t>(ids() % kVocabularySize);
    return prompt;
  }

  uint32_t prompt_tokens = 32, output_tokens = 16;
  std::function<void(PlannedRequest&, std::mt19937_64&)> edit;  // may be null

 private:
  double Unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  std::mt19937_64 random_;
  const uint64_t requests_;
  const double rate_;
  uint64_t next_ = 0;
  absl::Duration arrival_;
};

}  // namespace continuo::simulate

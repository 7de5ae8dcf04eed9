// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <algorithm>
#include <type_traits>

namespace continuo::gateway {

void FitMemory(uint64_t memory, GatewayConfig* config) {
  AdmissionLimits& open = config->admission;
  AdmissionLimits& forwarded = config->forwarded;
  openai::HttpLimits& http = config->http;
  const auto all =
      static_cast<double>(config->max_buffer_bytes) + static_cast<double>(open.max_open_bytes) +
      static_cast<double>(forwarded.max_open_bytes) + static_cast<double>(http.max_bodies_bytes) +
      static_cast<double>(http.max_answers_bytes);
  const double part = 0.75 * static_cast<double>(memory) / all;
  if (part >= 1) return;
  const auto fit = [part](auto& bytes) {
    using T = std::decay_t<decltype(bytes)>;
    bytes = std::max<T>(1, static_cast<T>(part * static_cast<double>(bytes)));
  };
  fit(config->max_buffer_bytes);
  fit(open.max_open_bytes);
  fit(forwarded.max_open_bytes);
  fit(http.max_bodies_bytes);
  fit(http.max_answers_bytes);
  http.max_body_bytes = std::min(http.max_body_bytes, static_cast<uint64_t>(http.max_bodies_bytes));
  http.max_answer_bytes = std::min(http.max_answer_bytes, http.max_answers_bytes);
}

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <algorithm>
#include <type_traits>

namespace continuo::gateway {
namespace {

// What all limits together take of a container; the rest is the program's, gRPC's and the kernel's.
constexpr double kShare = 0.75;

}  // namespace

void FitMemory(uint64_t memory, const ChosenLimits& chosen, GatewayConfig* config) {
  openai::HttpLimits& http = config->http;
  const auto for_each = [&](const auto& visit) {
    visit(config->max_buffer_bytes, kLeastBufferBytes, chosen.buffer_bytes);
    visit(config->admission.max_open_bytes, kLeastOpenBytes, chosen.open_bytes);
    visit(config->forwarded.max_open_bytes, kLeastOpenBytes, false);
    visit(http.max_bodies_bytes, kLeastOpenBytes, false);
    visit(http.max_answers_bytes, kLeastOpenBytes, false);
  };
  double left = kShare * static_cast<double>(memory);
  double all = 0;
  for_each([&](auto bytes, uint64_t, bool is_chosen) {
    if (is_chosen) {
      left -= static_cast<double>(bytes);
    } else {
      all += static_cast<double>(bytes);
    }
  });
  const double part = std::max(left, 0.0) / all;
  if (part >= 1) return;
  for_each([&](auto& bytes, uint64_t least, bool is_chosen) {
    using T = std::decay_t<decltype(bytes)>;
    if (!is_chosen)
      bytes = std::max(static_cast<T>(least), static_cast<T>(part * static_cast<double>(bytes)));
  });
  http.max_answer_bytes = std::min(http.max_answer_bytes, http.max_answers_bytes);
}

openai::HttpLimits HttpLimitsOf(const GatewayConfig& config) {
  openai::HttpLimits limits = config.http;
  limits.max_body_bytes =
      std::min(config.max_request_bytes, static_cast<uint64_t>(limits.max_bodies_bytes) / 2);
  return limits;
}

}  // namespace continuo::gateway

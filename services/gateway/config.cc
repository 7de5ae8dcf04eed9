// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <algorithm>
#include <type_traits>

namespace continuo::gateway {
namespace {

// What all limits together take of a container; the rest is the program's, gRPC's and the kernel's.
constexpr double kShare = 0.75;
// No limit is lowered below: a request or two.
constexpr int64_t kLeastBytes = int64_t{16} << 20;

}  // namespace

void FitMemory(uint64_t memory, const ChosenLimits& chosen, GatewayConfig* config) {
  openai::HttpLimits& http = config->http;
  const auto for_each = [&](const auto& visit) {
    visit(config->max_buffer_bytes, chosen.buffer_bytes);
    visit(config->admission.max_open_bytes, chosen.open_bytes);
    visit(config->forwarded.max_open_bytes, false);
    visit(http.max_bodies_bytes, false);
    visit(http.max_answers_bytes, false);
  };
  double left = kShare * static_cast<double>(memory);
  double all = 0;
  for_each([&](auto bytes, bool is_chosen) {
    if (is_chosen) {
      left -= static_cast<double>(bytes);
    } else {
      all += static_cast<double>(bytes);
    }
  });
  const double part = std::max(left, 0.0) / all;
  if (part >= 1) return;
  for_each([&](auto& bytes, bool is_chosen) {
    using T = std::decay_t<decltype(bytes)>;
    if (!is_chosen)
      bytes = std::max<T>(kLeastBytes, static_cast<T>(part * static_cast<double>(bytes)));
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

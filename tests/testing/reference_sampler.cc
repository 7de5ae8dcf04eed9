// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace continuo::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Adjusted(const model::SampleInput& input) {
  const model::SamplingParams& p = input.params;
  std::vector<double> logits(input.logits.begin(), input.logits.end());
  if (!input.mask.empty()) {
    for (size_t id = 0; id < logits.size(); ++id) {
      if ((input.mask[id / 32] & (1u << (id % 32))) == 0) logits[id] = -kInfinity;
    }
  }
  for (const kernels::LogitBias& bias : input.biases) {
    logits[static_cast<size_t>(bias.token_id)] += static_cast<double>(bias.bias);
  }
  for (const kernels::SeenToken& seen : input.seen) {
    double& logit = logits[static_cast<size_t>(seen.token_id)];
    if (logit > 0) {
      logit /= static_cast<double>(p.repetition_penalty);
    } else {
      logit *= static_cast<double>(p.repetition_penalty);
    }
    if (seen.answer_count > 0) logit -= static_cast<double>(p.presence_penalty);
    logit -= static_cast<double>(p.frequency_penalty) * seen.answer_count;
  }
  return logits;
}

void Narrow(double& margin, double distance) { margin = std::min(margin, std::abs(distance)); }

}  // namespace

ReferenceDraw ReferenceSample(const model::SampleInput& input) {
  const model::SamplingParams& p = input.params;
  const std::vector<double> logits = Adjusted(input);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  ReferenceDraw draw;
  const auto between = [&](size_t rank) {  // an order of neighbours that matters
    const double gap = logits[order[rank]] - logits[order[rank + 1]];
    if (gap > 0) Narrow(draw.margin, gap);
  };
  if (p.temperature == 0.0f) {
    draw.token_id = static_cast<int32_t>(order[0]);
    draw.num_kept = 1;
    if (order.size() > 1) between(0);
    return draw;
  }

  std::vector<double> weights;  // in `order`
  for (const size_t id : order) {
    weights.push_back(std::exp((logits[id] - max) / static_cast<double>(p.temperature)));
  }
  size_t kept = order.size();
  // min_p
  const double floor = static_cast<double>(p.min_p);
  if (floor > 0) {
    for (const double weight : weights) {
      if (weight < 1) Narrow(draw.margin, weight - floor);
    }
    while (kept > 1 && weights[kept - 1] < floor) --kept;
  }
  // top_k
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < kept) {
    kept = static_cast<size_t>(p.top_k);
    between(kept - 1);
  }
  // top_p
  if (p.top_p < 1.0f) {
    const double total =
        std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(kept), 0.0);
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < static_cast<double>(p.top_p) * total) {
      sum += weights[n++];
      Narrow(draw.margin, sum / total - static_cast<double>(p.top_p));
    }
    kept = n;
    if (kept < order.size()) between(kept - 1);
  }

  std::vector<size_t> ids(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept));
  std::vector<double> weight_of(logits.size());
  for (size_t i = 0; i < kept; ++i) weight_of[order[i]] = weights[i];
  std::sort(ids.begin(), ids.end());
  double total = 0;
  for (const size_t id : ids) total += weight_of[id];
  const double target = ReferenceUniform(p.seed, p.sequence_index, input.position) * total;
  draw.num_kept = static_cast<int>(kept);
  draw.token_id = -1;
  double sum = 0;
  for (const size_t id : ids) {
    sum += weight_of[id];
    if (id != ids.back()) Narrow(draw.margin, (sum - target) / total);
    if (sum > target && draw.token_id < 0) draw.token_id = static_cast<int32_t>(id);
  }
  if (draw.token_id < 0) draw.token_id = static_cast<int32_t>(ids.back());
  return draw;
}

std::vector<double> ReferenceLogprobs(std::span<const float> logits) {
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> logprobs;
  for (const float logit : logits) {
    logprobs.push_back(static_cast<double>(logit) - max - std::log(sum));
  }
  return logprobs;
}

double ReferenceUniform(uint64_t seed, int32_t sequence_index, int32_t position) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(sequence_index);
  uint32_t c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  // The first 53 of the 64 bits c0 c1.
  return std::ldexp(static_cast<double>((uint64_t{c0} << 32 | c1) >> 11), -53);
}

}  // namespace continuo::testing

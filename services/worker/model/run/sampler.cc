// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/math/exact_math.h"
#include "services/worker/model/run/philox.h"

namespace continuo::model {
namespace {

using Candidate = SamplerScratch::Candidate;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr size_t kLanes = 16;  // independent maxima, so that the compiler can use vectors
constexpr size_t kBlock = kernels::kSumBlock;

// Orders the heavier first, of equals the lower id: a strict total order.
bool Before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token_id < b.token_id);
}

// Returns the largest value; -infinity where there is none above it.
float MaxOf(std::span<const float> values) {
  std::array<float, kLanes> lanes;
  lanes.fill(-kInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes.begin(), lanes.end());
}

// Returns false where some value is NaN or +infinity.
bool AllOrdinary(std::span<const float> values) {
  std::array<int32_t, kLanes> strange = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) strange[j] |= values[i + j] <= kLargest ? 0 : 1;
  }
  for (; i < values.size(); ++i) strange[0] |= values[i] <= kLargest ? 0 : 1;
  return std::all_of(strange.begin(), strange.end(), [](int32_t s) { return s == 0; });
}

bool Allowed(std::span<const uint32_t> mask, size_t id) {
  return mask.empty() || (mask[id / 32] >> (id % 32) & 1u) != 0;
}

void ApplyMask(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t word = mask[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const size_t end = std::min(begin + 32, logits.size());
    for (size_t id = begin; id < end; ++id) {
      if ((word >> (id - begin) & 1u) == 0) logits[id] = -kInfinity;
    }
  }
}

void ApplyPenalty(const SamplingParams& params, kernels::SeenToken token, std::span<float> logits) {
  float& logit = logits[static_cast<size_t>(token.token_id)];
  logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  if (token.answer_count > 0) {
    logit -= params.presence_penalty;
    logit -= params.frequency_penalty * static_cast<float>(token.answer_count);
  }
  logit = std::min(logit, kLargest);
}

void ApplyPenalties(const SampleInput& input, std::span<float> logits) {
  bool is_counted = input.answered < 0;
  for (kernels::SeenToken token : input.seen) {
    if (token.token_id == input.answered) {
      ++token.answer_count;
      is_counted = true;
    }
    ApplyPenalty(input.params, token, logits);
  }
  if (!is_counted) ApplyPenalty(input.params, {input.answered, /*answer_count=*/1}, logits);
}

// Returns the logits after mask, bias and penalties; `raw` itself where there are none.
std::span<const float> Adjust(const SampleInput& input, std::span<const float> raw,
                              SamplerScratch& scratch) {
  const SamplingParams& p = input.params;
  const bool penalised = HasPenalty(p) && (!input.seen.empty() || input.answered >= 0);
  if (input.mask.empty() && input.biases.empty() && !penalised) return raw;
  scratch.adjusted.assign(raw.begin(), raw.end());
  const std::span<float> logits(scratch.adjusted);
  if (!input.mask.empty()) ApplyMask(input.mask, logits);
  for (const kernels::LogitBias& bias : input.biases) {
    float& logit = logits[static_cast<size_t>(bias.token_id)];
    logit = std::min(logit + bias.bias, kLargest);
  }
  if (penalised) ApplyPenalties(input, logits);
  return logits;
}

int32_t FirstOf(std::span<const float> values, float value) {
  return static_cast<int32_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

// Returns the sum of one block, four lanes wide.
double BlockSum(std::span<const float> weights) {
  std::array<double, 4> lanes = {};
  size_t i = 0;
  for (; i + 4 <= weights.size(); i += 4) {
    for (size_t j = 0; j < 4; ++j) lanes[j] += static_cast<double>(weights[i + j]);
  }
  for (; i < weights.size(); ++i) lanes[0] += static_cast<double>(weights[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

std::span<const float> Block(std::span<const float> weights, size_t begin) {
  return weights.subspan(begin, std::min(kBlock, weights.size() - begin));
}

double Sum(std::span<const float> weights) {
  double sum = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    sum += BlockSum(Block(weights, begin));
  }
  return sum;
}

// Computes e^((logit - max) / temperature) of each logit.
void FillWeights(std::span<const float> logits, float max, float temperature,
                 std::vector<float>& weights) {
  weights.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = kernels::ExactExp((logits[i] - max) / temperature);
  }
}

// Keeps the first k ≥ 1 in the order of Before, themselves in no particular order.
void KeepTopK(std::span<const float> logits, size_t k, std::vector<Candidate>& kept) {
  kept.clear();
  // A later id of the same logit is behind in the order, so it cannot come in any more.
  float threshold = -kInfinity;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] > threshold)) continue;
    kept.push_back({logits[id], static_cast<int32_t>(id)});
    if (kept.size() < 2 * k + 64) continue;
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(k - 1), kept.end(),
                     Before);
    kept.resize(k);
    threshold = kept[k - 1].value;
  }
  if (kept.size() > k) {
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(k - 1), kept.end(),
                     Before);
    kept.resize(k);
  }
}

void GatherAtLeast(std::span<const float> weights, float floor, std::vector<Candidate>& kept) {
  kept.clear();
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] >= floor && weights[id] > 0) {
      kept.push_back({weights[id], static_cast<int32_t>(id)});
    }
  }
}

double SumOf(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += static_cast<double>(candidate.value);
  return sum;
}

// Cuts `kept` to the shortest run, heaviest first, whose weight reaches top_p of `total`.
void KeepTopP(double top_p, double total, std::vector<Candidate>& kept) {
  std::sort(kept.begin(), kept.end(), Before);
  const double enough = top_p * total;
  double sum = 0;
  size_t n = 0;
  while (n < kept.size() && sum < enough) sum += static_cast<double>(kept[n++].value);
  kept.resize(std::max<size_t>(n, 1));
}

// Does the same over all weights, but gathers and sorts only the heaviest: weights are first added
// up in buckets by their leading bits, which order them.
void KeepTopP(double top_p, std::span<const float> weights, std::vector<Candidate>& kept) {
  constexpr int kShift = 21;  // leaves the exponent and two bits: steps of a quarter or less
  constexpr size_t kNumBuckets = (std::bit_cast<uint32_t>(1.0f) >> kShift) + 1;
  std::array<double, kNumBuckets> mass = {};
  for (const float weight : weights) {
    mass[std::bit_cast<uint32_t>(weight) >> kShift] += static_cast<double>(weight);
  }
  const double total = Sum(weights);
  // A little more than enough: sums of other orders differ by roundings.
  const double enough = top_p * total * (1 + 0x1p-30);
  double sum = 0;
  size_t bucket = kNumBuckets;
  while (bucket > 0 && sum < enough) sum += mass[--bucket];
  GatherAtLeast(weights, std::bit_cast<float>(static_cast<uint32_t>(bucket) << kShift), kept);
  KeepTopP(top_p, total, kept);
}

int32_t SampleFrom(std::vector<Candidate>& kept, double uniform) {
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.token_id < b.token_id; });
  const double target = uniform * SumOf(kept);
  double sum = 0;
  for (const Candidate& candidate : kept) {
    sum += static_cast<double>(candidate.value);
    if (sum > target) return candidate.token_id;
  }
  return kept.back().token_id;
}

int32_t SampleFrom(std::span<const float> weights, double uniform) {
  const double target = uniform * Sum(weights);
  double before = 0;
  int32_t last = 0;  // with weight
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const std::span<const float> block = Block(weights, begin);
    const double after = before + BlockSum(block);
    if (after > target) {
      double sum = before;
      for (size_t i = 0; i < block.size(); ++i) {
        if (!(block[i] > 0)) continue;
        sum += static_cast<double>(block[i]);
        last = static_cast<int32_t>(begin + i);
        if (sum > target) return last;
      }
      // Rounding put the target between the block's two sums.
      return last;
    }
    before = after;
  }
  return last;
}

int32_t SampleFiltered(const SampleInput& input, std::span<const float> logits, float max,
                       SamplerScratch& scratch) {
  const SamplingParams& p = input.params;
  const double uniform = UniformNumber(p.seed, p.sequence_index, input.position);
  std::vector<Candidate>& kept = scratch.candidates;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < logits.size()) {
    // min_p and top_k both keep the first of one order, so it does not matter which is first; and
    // this way only k exponentials are taken.
    KeepTopK(logits, static_cast<size_t>(p.top_k), kept);
    for (Candidate& candidate : kept) {
      candidate.value = kernels::ExactExp((candidate.value - max) / p.temperature);
    }
    std::erase_if(kept, [&p](const Candidate& candidate) {
      return !(candidate.value >= p.min_p) || !(candidate.value > 0);
    });
    // Different logits may have the same weight; the sums run in the order of the weights.
    if (p.top_p < 1.0f) {
      std::sort(kept.begin(), kept.end(), Before);
      KeepTopP(static_cast<double>(p.top_p), SumOf(kept), kept);
    }
    return SampleFrom(kept, uniform);
  }
  FillWeights(logits, max, p.temperature, scratch.weights);
  if (p.min_p > 0.0f) {
    GatherAtLeast(scratch.weights, p.min_p, kept);
    if (p.top_p < 1.0f) KeepTopP(static_cast<double>(p.top_p), SumOf(kept), kept);
    return SampleFrom(kept, uniform);
  }
  if (p.top_p < 1.0f) {
    KeepTopP(static_cast<double>(p.top_p), scratch.weights, kept);
    return SampleFrom(kept, uniform);
  }
  return SampleFrom(scratch.weights, uniform);
}

int32_t PickToken(const SampleInput& input, std::span<const float> raw, SamplerScratch& scratch) {
  const std::span<const float> logits = Adjust(input, raw, scratch);
  const float max = MaxOf(logits);
  if (max == -kInfinity) {
    for (size_t id = 0; id < logits.size(); ++id) {
      if (Allowed(input.mask, id)) return static_cast<int32_t>(id);
    }
    return 0;
  }
  if (input.params.temperature == 0.0f) return FirstOf(logits, max);
  return SampleFiltered(input, logits, max, scratch);
}

TokenScore Score(std::span<const float> raw, int32_t token_id, int num_alternatives,
                 SamplerScratch& scratch) {
  const float max = MaxOf(raw);
  FillWeights(raw, max == -kInfinity ? 0.0f : max, 1.0f, scratch.weights);
  const LogprobOf logprob(max, Sum(scratch.weights));
  TokenScore score;
  score.logprob = logprob(raw[static_cast<size_t>(token_id)]);
  const size_t n = std::min(static_cast<size_t>(num_alternatives), raw.size());
  if (n == 0) return score;
  KeepTopK(raw, n, scratch.candidates);
  std::sort(scratch.candidates.begin(), scratch.candidates.end(), Before);
  score.alternatives.reserve(n);
  for (const Candidate& candidate : scratch.candidates) {
    score.alternatives.push_back({candidate.token_id, logprob(candidate.value)});
  }
  return score;
}

}  // namespace

SampleOutput SampleToken(const SampleInput& input, SamplerScratch& scratch) {
  std::span<const float> raw = input.logits;
  if (!AllOrdinary(raw)) {
    scratch.raw.assign(raw.begin(), raw.end());
    for (float& logit : scratch.raw) {
      if (!(logit <= kLargest)) logit = logit > kLargest ? kLargest : -kInfinity;
    }
    raw = scratch.raw;
  }
  SampleOutput output;
  output.token_id = input.target >= 0 ? input.target : PickToken(input, raw, scratch);
  if (input.params.num_logprobs >= 0) {
    output.score = Score(raw, output.token_id, input.params.num_logprobs, scratch);
  }
  return output;
}

}  // namespace continuo::model

// SPDX-License-Identifier: Apache-2.0
// Measures one sample from 152k logits, on one thread. A greedy token without log-probabilities
// costs one pass for the maximum and one to find it.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "services/worker/model/run/sampler.h"

namespace continuo::model {
namespace {

constexpr size_t kVocab = 151936;

std::vector<float> Logits() {
  std::mt19937 random(1);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) {
    float sum = 0;  // of twelve uniforms: nearly normal
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 8) * 0x1p-24f;
    logit = (sum - 6) * 2.5f;
  }
  return logits;
}

void Run(benchmark::State& state, const SamplingParams& params) {
  const std::vector<float> logits = Logits();
  SamplerScratch scratch;
  SampleInput input{.logits = logits, .params = params};
  for (auto _ : state) {
    ++input.position;
    benchmark::DoNotOptimize(SampleToken(input, scratch).token_id);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kVocab * sizeof(float)));
}

BENCHMARK_CAPTURE(Run, greedy, SamplingParams{.temperature = 0});
BENCHMARK_CAPTURE(Run, plain, SamplingParams{});
BENCHMARK_CAPTURE(Run, top_k_50, SamplingParams{.top_k = 50});
BENCHMARK_CAPTURE(Run, top_p_95, SamplingParams{.top_p = 0.95f});
BENCHMARK_CAPTURE(Run, top_k_20_top_p_95, SamplingParams{.top_k = 20, .top_p = 0.95f});
BENCHMARK_CAPTURE(Run, min_p_5, SamplingParams{.min_p = 0.05f});
BENCHMARK_CAPTURE(Run, greedy_logprobs_20, SamplingParams{.temperature = 0, .num_logprobs = 20});

}  // namespace
}  // namespace continuo::model

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

constexpr int64_t kVocabulary = 151936;

// Returns logits like a model's: a few large ones, the others far below.
kernels::Tensor LogitsOf(OpsSource& s, int64_t rows) {
  constexpr int64_t kLarge = 50;
  const kernels::Tensor logits = s.Zeros(kernels::DType::kF32, {rows, kVocabulary, 1});
  std::vector<float> row(kVocabulary);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < kVocabulary; ++i) {
      const auto place = (i * 7919 + r) % kVocabulary;
      row[static_cast<size_t>(i)] = place < kLarge ? -0.3f * static_cast<float>(place)
                                                   : -20 - static_cast<float>(place) * 0x1p-16f;
    }
    kernels::Tensor one = logits;
    one.shape[0] = 1;
    one.data = static_cast<float*>(logits.data) + r * kVocabulary;
    s.b.CopyIn(one, row.data());
    EndOnFailure(s.b.Synchronize());
  }
  return logits;
}

Calls SamplesOf(OpsSource& s, std::vector<kernels::SampleRequest> requests) {
  const auto rows = static_cast<int64_t>(requests.size());
  const kernels::Tensor logits = LogitsOf(s, rows),
                        tokens = s.Zeros(kernels::DType::kI32, {rows, 1, 1});
  const std::span<kernels::SampledToken> sampled = s.Sampled(requests.size());
  return {[=, &s, requests = std::move(requests)] {
    if (!s.b.ops().sampling.SampleTokens(sampled, tokens, logits, {}, {.requests = requests})) {
      EndOnFailure(absl::UnimplementedError("the device does not sample tokens"));
    }
  }};
}

}  // namespace

// The logits have to be read. The host's time counts, since calls are enqueued one by one.
void AddSamples(OpsSource& s) {
  for (const auto& [name, request] : std::vector<std::pair<std::string, kernels::SampleRequest>>{
           {"greedy", {.temperature = 0}},
           {"plain", {.uniform = 0.7}},
           {"top_k 50", {.uniform = 0.7, .temperature = 0.2f, .top_k = 50}},
           {"top_p 0.95", {.uniform = 0.7, .top_p = 0.95f}},
           {"top_k 20, top_p 0.95",
            {.uniform = 0.7, .temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
           {"greedy, 5 logprobs", {.temperature = 0, .num_alternatives = 5}}}) {
    for (const int64_t rows : {1, 16, 64}) {
      std::vector<kernels::SampleRequest> requests(static_cast<size_t>(rows), request);
      for (int64_t r = 0; r < rows; ++r) {
        requests[static_cast<size_t>(r)].row = static_cast<int32_t>(r);
      }
      s.Add({.group = "samples",
             .name = "SampleTokens " + name + ", rows " + std::to_string(rows),
             .bytes = 4.0 * static_cast<double>(rows * kVocabulary),
             .make = [=, &s] { return SamplesOf(s, requests); },
             .is_capturable = false,
             .ceilings = {kReading}});
    }
  }
}

}  // namespace continuo

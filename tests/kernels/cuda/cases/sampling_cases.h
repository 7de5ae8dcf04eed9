// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/math/exact_math.h"
#include "services/worker/model/run/step_sampler.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/worker/model/run/sampler_cases.h"

// Samples on a device beside SampleToken on the host, bit by bit. The cases run on whatever is
// linked: the shim or a device.
namespace continuo::testing {

// A step whose samples are cases of one vocabulary, each with its own row except the last
// `num_sharing`, which read the row before theirs.
class SampledStep {
 public:
  SampledStep(std::vector<std::unique_ptr<RandomCase>> cases, int num_sharing)
      : cases_(std::move(cases)) {
    const int n = static_cast<int>(cases_.size());
    for (int i = 0; i < n; ++i) {
      RandomCase& one = *cases_[static_cast<size_t>(i)];
      const bool shares = i > 0 && i >= n - num_sharing;
      if (shares) {
        one.logits = cases_[static_cast<size_t>(i) - 1]->logits;
        one.input.logits = one.logits;
        one.input.position = plan_.positions.back() + 1;
        if (plan_.token_ids.back() >= 0) {
          one.input.answered = -1;
        } else if (model::HasPenalty(one.input.params)) {
          one.input.answered = row_tokens_.back();
        }
      } else {
        plan_.positions.push_back(one.input.position - 1);
        plan_.token_ids.push_back(one.input.answered >= 0 ? model::SampledBy(i) : 0);
        row_tokens_.push_back(std::max(0, one.input.answered));
        logits_.insert(logits_.end(), one.logits.begin(), one.logits.end());
      }
      plan_.sample_rows.push_back(static_cast<int32_t>(plan_.positions.size()) - 1);
      plan_.sample_targets.push_back(one.input.target);
      plan_.sampling.push_back(one.input.params);
      plan_.biases.insert(plan_.biases.end(), one.biases.begin(), one.biases.end());
      plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
      plan_.seen.insert(plan_.seen.end(), one.seen.begin(), one.seen.end());
      plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
    }
  }

  // Returns how many tokens the host sampled.
  size_t Check(kernels::Device& device) {
    const auto vocab = static_cast<int>(cases_[0]->logits.size());
    const int rows = static_cast<int>(plan_.positions.size());
    model::StepSampler sampler(device, vocab, /*num_threads=*/2);
    EXPECT_TRUE(sampler.Reserve(static_cast<int>(cases_.size())).ok());
    const HostTensor host(kernels::DType::kF32, rows, vocab);
    std::copy(logits_.begin(), logits_.end(), static_cast<float*>(host.tensor().data));
    const DeviceTensor logits(device, host.tensor());
    const DeviceTensor row_tokens(device, HostTensor::OfInts(row_tokens_));
    sampler.FillMasks(kParity, plan_, [this](std::span<uint32_t> mask) {
      for (const auto& one : cases_) {
        std::copy(one->mask.begin(), one->mask.end(), mask.begin());
        mask = mask.subspan(one->mask.size());
      }
      EXPECT_TRUE(mask.empty());
    });
    model::StepResult result;
    result.token_ids.resize(cases_.size());
    result.scores.resize(cases_.size(),
                         {.logprob = 7, .alternatives = {{1, 2}}});  // left from an earlier step
    // There are two slices if there are several rows.
    std::vector<std::pair<model::SampleSlice, kernels::Tensor>> slices;
    const int middle = rows / 3;
    int sample = 0, num_sampled = 0;
    for (const auto& [first, end] : {std::pair{0, middle}, std::pair{middle, rows}}) {
      const int begin = sample;
      while (sample < static_cast<int>(cases_.size()) &&
             plan_.sample_rows[static_cast<size_t>(sample)] < end) {
        ++sample;
      }
      if (sample == begin) continue;
      kernels::Tensor slice = logits;
      slice.data = static_cast<float*>(slice.data) + int64_t{first} * vocab;
      slice.shape[0] = end - first;
      slices.push_back({{begin, sample, first, plan_.sample_rows}, slice});
      if (num_sampled == begin &&
          sampler.SampleOnDevice(kParity, plan_, slices.back().first, slice, row_tokens)) {
        num_sampled = sample;
      }
    }
    // Samples are there for the next step: each sample's token. An id that is known stays, and one
    // of no sample is 0.
    std::vector<int32_t> ids = {3, model::SampledBy(1 << 28)};
    for (int i = 0; i < num_sampled; ++i) ids.push_back(model::SampledBy(i));
    const DeviceTensor next(device, HostTensor::OfInts(ids));
    if (num_sampled > 0) sampler.ResolveTokens(next);
    EXPECT_TRUE(device.WaitForEvent(device.RecordEvent()).ok());
    std::vector<int32_t> left;
    std::vector<int32_t> left_to_host;
    for (int i = num_sampled; i < static_cast<int>(cases_.size()); ++i) left_to_host.push_back(i);
    sampler.TakeSampled(kParity, plan_, left_to_host, result, left);
    const HostTensor taken = next.Get();
    EXPECT_EQ(static_cast<const int32_t*>(taken.tensor().data)[0], 3);
    EXPECT_EQ(static_cast<const int32_t*>(taken.tensor().data)[1],
              num_sampled > 0 ? 0 : model::SampledBy(1 << 28));
    for (int i = 0; i < num_sampled; ++i) {
      const int32_t token = static_cast<const int32_t*>(taken.tensor().data)[i + 2];
      if (std::ranges::binary_search(left, i)) {
        EXPECT_TRUE(token >= 0 && token < vocab) << i;
      } else {
        EXPECT_EQ(token, result.token_ids[static_cast<size_t>(i)]) << i;
      }
    }
    for (const auto& [slice, part] : slices) {
      std::vector<int32_t> here;
      for (const int32_t i : left) {
        if (i >= slice.begin && i < slice.end) here.push_back(i);
      }
      EXPECT_TRUE(sampler.SampleOnHost(kParity, plan_, slice, part, row_tokens, here, result).ok());
    }
    model::SamplerScratch scratch;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const model::SampleOutput expected = model::SampleToken(cases_[i]->input, scratch);
      const model::TokenScore& score = result.scores[i];
      EXPECT_EQ(result.token_ids[i], expected.token_id) << i;
      EXPECT_EQ(std::bit_cast<uint32_t>(score.logprob),
                std::bit_cast<uint32_t>(expected.score.logprob))
          << i;
      EXPECT_EQ(score.alternatives.size(), expected.score.alternatives.size()) << i;
      if (score.alternatives.size() != expected.score.alternatives.size()) continue;
      for (size_t j = 0; j < score.alternatives.size(); ++j) {
        EXPECT_EQ(score.alternatives[j].token_id, expected.score.alternatives[j].token_id) << i;
        EXPECT_EQ(score.alternatives[j].logprob, expected.score.alternatives[j].logprob) << i;
      }
    }
    return left.size();
  }

 private:
  static constexpr int kParity = 1;
  std::vector<std::unique_ptr<RandomCase>> cases_;
  std::vector<float> logits_;
  std::vector<int32_t> row_tokens_;  // as the device has them
  model::StepPlan plan_;
};

// Checks random requests.
inline void CheckRandomSamples(kernels::Device& device, const std::vector<size_t>& vocabularies,
                               int num_steps) {
  size_t all_left = 0;
  for (int step = 0; step < num_steps; ++step) {
    for (const size_t vocab : vocabularies) {
      SCOPED_TRACE("vocabulary " + std::to_string(vocab) + ", step " + std::to_string(step));
      std::vector<std::unique_ptr<RandomCase>> cases;
      for (int i = 0; i < 30; ++i) {
        const auto number = static_cast<uint64_t>(step * 1000 + i);
        auto one = std::make_unique<RandomCase>(number, vocab, vocab > 3000 ? 9 : 1);
        one->input.params.num_logprobs = static_cast<int32_t>(number % 23) - 2;
        if (one->input.params.num_logprobs < 0) one->input.params.num_logprobs = -1;
        if (number % 3 == 0) one->input.params.top_k = static_cast<int32_t>(1 + number % 60);
        if (number % 11 == 0) one->input.target = static_cast<int32_t>(number % vocab);
        if (number % 2 == 0) one->CountOnceMore(number);
        cases.push_back(std::move(one));
      }
      const size_t left = SampledStep(std::move(cases), /*num_sharing=*/5).Check(device);
      if (::testing::Test::HasFailure()) return;
      // Flat distributions leave more than a device sorts. Not all are flat, and these are small.
      EXPECT_LE(left, vocab <= 1024 ? 0u : 20u);
      all_left += left;
    }
  }
  EXPECT_GT(all_left, 0u);
}

// A confident model gives such logits: fifty within 15 of the largest, the others 20 below.
inline void CheckPeakedSamples(kernels::Device& device, size_t vocab) {
  std::vector<std::unique_ptr<RandomCase>> cases;
  for (const model::SamplingParams& params :
       std::vector<model::SamplingParams>{{.temperature = 0.2f, .top_k = 50},
                                          {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f},
                                          {.temperature = 0.01f, .top_k = 60, .num_logprobs = 20},
                                          {.temperature = 100, .top_k = 40},
                                          {.temperature = 0.7f, .top_p = 0.9f, .num_logprobs = 3},
                                          {.min_p = 0.05f}}) {
    auto one = std::make_unique<RandomCase>(cases.size(), vocab);
    one->logits.assign(vocab, 0);
    for (size_t id = 0; id < vocab; ++id) {
      const size_t place = id * 7919 % vocab;
      one->logits[id] = place < 50 ? -0.3f * static_cast<float>(place)
                                   : -20 - static_cast<float>(place) * 0x1p-12f;
    }
    one->biases.clear();
    one->seen.clear();
    one->mask.clear();
    one->input = {.logits = one->logits, .params = params, .position = 5};
    cases.push_back(std::move(one));
  }
  EXPECT_EQ(SampledStep(std::move(cases), 0).Check(device), 0u);
}

// There are more samples than a batch has, and more that are left to the host, of few rows and of
// as many, than the host has room for rows.
inline void CheckManySamples(kernels::Device& device) {
  for (const auto& [num_cases, expected_left, num_sharing] : std::vector<std::array<int, 3>>{
           {kernels::kMaxSamples + 40, kernels::kMaxSamples + 40, kernels::kMaxSamples + 37},
           {150, 150, 147},
           {150, 150, 0},
           {150, 0, 147}}) {
    constexpr size_t kVocab = 1100;
    std::vector<std::unique_ptr<RandomCase>> cases;
    for (int i = 0; i < num_cases; ++i) {
      auto one = std::make_unique<RandomCase>(static_cast<uint64_t>(i), kVocab);
      one->input.params = {.seed = static_cast<uint64_t>(i), .num_logprobs = 0};
      one->input.target = -1;
      one->mask.clear();
      one->input.mask = {};
      // All logits but one are equal, and top_p needs more of them than are sorted.
      if (expected_left > 0) {
        std::fill(one->logits.begin(), one->logits.end(), 1.0f);
        one->logits[static_cast<size_t>(i * 7) % kVocab] = 7;
        one->biases.clear();
        one->seen.clear();
        one->input.biases = {};
        one->input.seen = {};
        one->input.params.top_p = 0.99f;
      }
      cases.push_back(std::move(one));
    }
    EXPECT_EQ(SampledStep(std::move(cases), num_sharing).Check(device),
              static_cast<size_t>(expected_left));
    if (::testing::Test::HasFailure()) return;
  }
}

// Checks the sum behind log-probabilities in the order of kernels/sampling.h, with weights so
// different that other orders round differently. No token or float would show that.
inline void CheckSums(kernels::Device& device, const std::vector<size_t>& vocabularies) {
  for (const size_t vocab : vocabularies) {
    RandomCase one(1000 + vocab, vocab);
    for (size_t id = 0; id < vocab; ++id)
      one.logits[id] = -static_cast<float>(id * 7919 % 1000) / 20;
    double sum = 0;
    const float max = *std::max_element(one.logits.begin(), one.logits.end());
    for (size_t begin = 0; begin < vocab; begin += kernels::kSumBlock) {
      const size_t size = std::min<size_t>(kernels::kSumBlock, vocab - begin);
      double lanes[4] = {};
      for (size_t i = 0; i < size; ++i) {
        const size_t lane = i < size / 4 * 4 ? i % 4 : 0;
        lanes[lane] += static_cast<double>(kernels::ExactExp(one.logits[begin + i] - max));
      }
      sum += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
    const HostTensor host(kernels::DType::kF32, 1, static_cast<int64_t>(vocab));
    std::copy(one.logits.begin(), one.logits.end(), static_cast<float*>(host.tensor().data));
    const DeviceTensor logits(device, host.tensor());
    const kernels::SampleRequest request = {.target = 0, .num_alternatives = 0};
    auto memory = device.AllocateHost(sizeof(kernels::SampledToken));
    ASSERT_TRUE(memory.ok());
    auto* const sampled = static_cast<kernels::SampledToken*>(*memory);
    const DeviceTensor token(device, HostTensor::OfInts({7}));
    ASSERT_TRUE(device.ops().sampling.SampleTokens({sampled, 1}, token, logits, {},
                                                   {.requests = {&request, 1}}));
    ASSERT_TRUE(device.Synchronize().ok());
    EXPECT_EQ(sampled->sum, sum) << vocab;
    EXPECT_EQ(sampled->max_logit, max);
    device.FreeHost(sampled);
  }
}

// The logits have NaN and infinities, or nothing is left.
inline void CheckStrangeSamples(kernels::Device& device) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<model::SamplingParams> params = {
      {.temperature = 0},
      {},
      {.top_k = 3, .top_p = 0.5f},
      {.min_p = 1},
      {.temperature = 1e-38f, .top_p = 1e-6f},
      {.temperature = 100, .top_p = 0.9f, .repetition_penalty = 1e-6f, .num_logprobs = 20},
      {.top_p = 0, .num_logprobs = 0},
  };
  for (const float strange : {kNaN, kInfinity, -kInfinity, 3e38f, -3e38f}) {
    for (const size_t vocab : {2, 300, 9000}) {
      for (const bool all : {false, true}) {
        std::vector<std::unique_ptr<RandomCase>> cases;
        for (size_t i = 0; i < params.size(); ++i) {
          auto one = std::make_unique<RandomCase>(i, vocab);
          for (size_t id = 0; id < vocab; ++id) {
            if (all || id % 7 == 1) one->logits[id] = strange;
          }
          one->input.params = params[i];
          // No id is allowed, or one.
          one->input.params.masked = i % 2 == 0;
          one->mask.assign(i % 2 == 0 ? (vocab + 31) / 32 : 0, 0);
          if (i % 4 == 0) one->mask[(vocab - 1) / 32] = 1u << ((vocab - 1) % 32);
          one->input.mask = one->mask;
          cases.push_back(std::move(one));
        }
        SCOPED_TRACE(std::to_string(strange) + " of " + std::to_string(vocab));
        SampledStep(std::move(cases), 0).Check(device);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace continuo::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine.h"
#include "tests/kernels/cuda/model_cases.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/testing/manual_clock.h"

// The engine on a device, for whatever is linked: the shim or a device. Steps that begin before the
// tokens of the last one are known give what steps one after the other give.
namespace continuo::testing {

// Allows one step at a time, or two; counts those that began behind another and the draws that were
// lost to them.
class OverlapExecutor : public ForwardingExecutor {
 public:
  OverlapExecutor(Executor* executor, bool overlaps)
      : ForwardingExecutor(executor), overlaps_(overlaps) {}

  bool WorksApart() const override { return overlaps_; }
  absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) override {
    num_ahead += num_under_way_++;
    return ForwardingExecutor::Start(plan, fill_mask);
  }
  absl::StatusOr<StepResult> Finish() override {
    --num_under_way_;
    auto result = ForwardingExecutor::Finish();
    if (result.ok()) num_lost += std::ranges::count(result->token_ids, -1);
    return result;
  }

  int64_t num_ahead = 0, num_lost = 0;

 private:
  const bool overlaps_;
  int num_under_way_ = 0;
};

struct OverlapAnswers {
  std::map<std::pair<RequestId, int>, std::vector<int32_t>> tokens;
  std::map<std::pair<RequestId, int>, std::vector<float>> logprobs;
  int64_t num_ahead = 0, num_lost = 0;
};

inline std::vector<Request> OverlapRequests(int vocab) {
  std::vector<Request> requests(7);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& r = requests[i];
    r.id = i + 1;
    r.prompt = Prompt(3 + 9 * static_cast<int>(i), vocab, static_cast<uint32_t>(i));
    r.max_tokens = 24 + 3 * static_cast<int>(i % 3);
    r.sampling = {.temperature = 1, .seed = i};
  }
  requests[0].sampling.temperature = 0;
  requests[1].num_sequences = 3;
  requests[2].sampling.num_logprobs = 3;
  requests[3].stop_ids = {1, 2, 3, 5, 8, 13, 21, 34};
  requests[3].min_tokens = 6;
  // More than a device tells: the host draws these, and steps ahead of them are in vain.
  requests[4].sampling.num_logprobs = kMaxAlternatives + 1;
  requests[4].max_tokens = 9;
  // Among few tokens it decides how often each has come.
  requests[5].num_sequences = 2;
  requests[5].biases = {{4, 20}, {9, 20}, {17, 20}, {23, 20}};
  requests[5].sampling.repetition_penalty = 1.1f;
  requests[5].sampling.presence_penalty = 0.5f;
  requests[5].sampling.frequency_penalty = 0.4f;
  requests[6].sampling.top_p = 0.9f;
  return requests;
}

inline OverlapAnswers AnswerOn(LoadedModel& model, bool overlaps) {
  OverlapExecutor executor(model.executor.get(), overlaps);
  ManualClock clock;
  EngineMetrics metrics;
  EngineOptions options;
  options.num_blocks = model.num_blocks;
  options.block_size = model.block_size;
  options.vocab_size = model.config.vocab_size;
  options.max_batch_tokens = 40;  // prompts come in chunks, beside rows that decode
  options.calibrate = false;
  const std::vector<Request> requests = OverlapRequests(options.vocab_size);
  OverlapAnswers answers;
  Engine engine(options, &executor, &clock, &metrics);
  absl::BlockingCounter left(static_cast<int>(requests.size()));
  for (const Request& request : requests) {
    const auto sink = [&answers, &left, id = request.id](RequestEvent event) {
      for (SequenceDelta& delta : event.deltas) {
        auto& tokens = answers.tokens[{id, delta.index}];
        tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
        for (const TokenScore& score : delta.scores) {
          answers.logprobs[{id, delta.index}].push_back(score.logprob);
        }
      }
      if (!event.ended) return;
      EXPECT_TRUE(event.ended->ok()) << *event.ended;
      left.DecrementCount();
    };
    EXPECT_TRUE(engine.Submit(request, sink).ok());
  }
  std::thread thread([&] { EXPECT_TRUE(engine.Run().ok()); });
  left.Wait();
  engine.Stop();
  thread.join();
  answers.num_ahead = executor.num_ahead;
  answers.num_lost = executor.num_lost;
  return answers;
}

// Deterministic, so that tokens do not depend on which rows a step has.
inline void CheckOverlap(const std::string& device) {
  for (const char* family : {"llama", "qwen3_moe"}) {
    SCOPED_TRACE(std::string(family) + " " + device);
    const TinyModel files({.family = family, .dtype = "bf16"});
    LoadedModel model = LoadOn(files, device, /*deterministic=*/true);
    ASSERT_TRUE(model.executor->WorksApart());
    const OverlapAnswers one = AnswerOn(model, false), two = AnswerOn(model, true);
    EXPECT_EQ(one.num_ahead, 0);
    EXPECT_GT(two.num_ahead, 8);
    EXPECT_GT(two.num_lost, 0);
    EXPECT_EQ(one.tokens, two.tokens);
    EXPECT_EQ(one.logprobs, two.logprobs);
    EXPECT_EQ(two.tokens.size(), 10u);
  }
}

}  // namespace continuo::testing

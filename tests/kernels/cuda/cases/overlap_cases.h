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
#include "services/worker/engine/draft/model_drafter.h"
#include "services/worker/engine/engine.h"
#include "tests/kernels/cuda/cases/adapted_model_cases.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/scripted_constraint.h"

// The engine on a device. The cases run on whatever is linked: the shim or a device. Steps that
// begin before the tokens of the last one are known give what steps one after the other give.
namespace continuo::testing {

// Allows one step at a time, or two. Counts those that began behind another, and the samples that
// were lost to them. A step takes 10 ms of the clock.
class OverlapExecutor : public ForwardingExecutor {
 public:
  OverlapExecutor(model::Executor* executor, ManualClock* clock, bool overlaps)
      : ForwardingExecutor(executor), clock_(*clock), overlaps_(overlaps) {}

  bool IsAsynchronous() const override { return overlaps_; }
  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    num_ahead += num_under_way_++;
    return ForwardingExecutor::Start(plan, fill_mask);
  }
  absl::StatusOr<model::StepResult> Finish() override {
    --num_under_way_;
    clock_.Advance(absl::Milliseconds(10));
    auto result = ForwardingExecutor::Finish();
    if (result.ok()) num_lost += std::ranges::count(result->token_ids, -1);
    return result;
  }

  int64_t num_ahead = 0, num_lost = 0;

 private:
  ManualClock& clock_;
  const bool overlaps_;
  int num_under_way_ = 0;
};

struct OverlapAnswers {
  std::map<std::pair<engine::RequestId, int>, std::vector<int32_t>> tokens;
  std::map<std::pair<engine::RequestId, int>, std::vector<float>> logprobs;
  int64_t num_ahead = 0, num_lost = 0;
  int64_t num_drafts = 0, num_hits = 0;
};

inline std::vector<engine::Request> OverlapRequests(int vocab) {
  std::vector<engine::Request> requests(7);
  for (size_t i = 0; i < requests.size(); ++i) {
    engine::Request& r = requests[i];
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
  // This is more than a device reports, so the host samples these, and overlapped steps of them are
  // in vain.
  requests[4].sampling.num_logprobs = kernels::kMaxAlternatives + 1;
  requests[4].max_tokens = 9;
  // Among few tokens, the number of times that each has come decides.
  requests[5].num_sequences = 2;
  requests[5].biases = {{4, 20}, {9, 20}, {17, 20}, {23, 20}};
  requests[5].sampling.repetition_penalty = 1.1f;
  requests[5].sampling.presence_penalty = 0.5f;
  requests[5].sampling.frequency_penalty = 0.4f;
  requests[6].sampling.top_p = 0.9f;
  return requests;
}

// `draft` is null, or a model that guesses; its steps take no time of the clock.
inline OverlapAnswers AnswerOn(model::LoadedModel& model,
                               const std::vector<engine::Request>& requests, bool overlaps,
                               model::LoadedModel* draft = nullptr) {
  ManualClock clock;
  OverlapExecutor executor(model.executor.get(), &clock, overlaps);
  engine::EngineMetrics metrics;
  engine::EngineOptions options;
  options.num_blocks = model.num_blocks;
  options.block_size = model.block_size;
  options.vocab_size = model.config.vocab_size;
  options.max_batch_tokens = 40;  // prompts come in chunks, beside rows that decode
  options.calibrate = false;
  if (draft != nullptr) {
    options.drafter = std::make_shared<engine::ModelDrafter>(
        engine::ModelDrafterOptions{.num_blocks = draft->num_blocks,
                                    .block_size = draft->block_size,
                                    .vocab_size = draft->config.vocab_size,
                                    .target_vocab_size = model.config.vocab_size,
                                    .context_length = draft->config.context_length,
                                    .max_batch_tokens = 64},
        std::move(draft->executor), &clock);
  }
  OverlapAnswers answers;
  engine::Engine engine(options, &executor, &clock, &metrics);
  absl::BlockingCounter left(static_cast<int>(requests.size()));
  for (const engine::Request& request : requests) {
    const auto sink = [&answers, &left, id = request.id](engine::RequestEvent event) {
      for (engine::SequenceDelta& delta : event.deltas) {
        auto& tokens = answers.tokens[{id, delta.index}];
        tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
        for (const model::TokenScore& score : delta.scores) {
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
  answers.num_drafts = metrics.draft_tokens.load();
  answers.num_hits = metrics.accepted_draft_tokens.load();
  return answers;
}

// The model is deterministic, so tokens do not depend on the rows of a step.
inline void CheckOverlap(const std::string& device) {
  for (const char* family : {"llama", "qwen3_moe"}) {
    SCOPED_TRACE(std::string(family) + " " + device);
    const TinyModel files({.family = family, .dtype = "bf16"});
    model::LoadedModel model = LoadOn(files, device, /*deterministic=*/true);
    ASSERT_TRUE(model.executor->IsAsynchronous());
    const std::vector<engine::Request> requests = OverlapRequests(model.config.vocab_size);
    const OverlapAnswers one = AnswerOn(model, requests, false);
    const OverlapAnswers two = AnswerOn(model, requests, true);
    EXPECT_EQ(one.num_ahead, 0);
    EXPECT_GT(two.num_ahead, 8);
    EXPECT_GT(two.num_lost, 0);
    EXPECT_EQ(one.tokens, two.tokens);
    EXPECT_EQ(one.logprobs, two.logprobs);
    EXPECT_EQ(two.tokens.size(), 10u);
  }
}

// The same of sequences with adapters, several of them in a step.
inline void CheckAdaptedOverlap(const std::string& device) {
  const TinyModel files({.family = "llama", .dtype = "bf16"});
  const AdapterFolder folder(files, 3);
  model::LoadedModel model =
      LoadAdapted(files, device, folder, {0, 1, 2}, {}, /*deterministic=*/true);
  ASSERT_TRUE(model.executor->IsAsynchronous());
  std::vector<engine::Request> requests = OverlapRequests(model.config.vocab_size);
  const OverlapAnswers plain = AnswerOn(model, requests, true);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 4 == 3) continue;
    requests[i].adapter = model.adapters[i % 4].lease->id;
    requests[i].adapter_lease = model.adapters[i % 4].lease;
  }
  const OverlapAnswers one = AnswerOn(model, requests, false);
  const OverlapAnswers two = AnswerOn(model, requests, true);
  EXPECT_EQ(one.num_ahead, 0);
  EXPECT_GT(two.num_ahead, 8);
  EXPECT_GT(two.num_lost, 0);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_EQ(one.logprobs, two.logprobs);
  EXPECT_EQ(two.tokens.size(), 10u);
  EXPECT_NE(two.tokens, plain.tokens);
}

// Checks that constrained sequences obey, and that their neighbour's tokens are as without them,
// whether or not steps may overlap.
inline void CheckConstraints(const std::string& device) {
  const TinyModel files({.dtype = "bf16"});
  model::LoadedModel model = LoadOn(files, device, /*deterministic=*/true);
  const auto all = [&] { return OverlapRequests(model.config.vocab_size); };
  const Script script = AfterThought({1, 2, 3, 4, 5, 6, 7, 8, 9}, RandomAutomaton(5, true));
  const auto requests = [&] {
    std::vector<engine::Request> some = {all()[0], all()[1], all()[2], all()[5]};
    Constrain(some[0], RandomAutomaton(4, false));
    Constrain(some[1], script);
    Constrain(some[3], script);
    return some;
  };
  const OverlapAnswers plain = AnswerOn(model, {all()[2]}, true);
  const OverlapAnswers one = AnswerOn(model, requests(), false);
  const std::vector<engine::Request> asked = requests();
  const OverlapAnswers two = AnswerOn(model, asked, true);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_EQ(two.tokens.at({3, 0}), plain.tokens.at({3, 0}));
  EXPECT_EQ(two.logprobs.at({3, 0}), plain.logprobs.at({3, 0}));
  for (const engine::Request& request : asked) {
    if (request.constraints.empty()) continue;
    for (int i = 0; i < request.num_sequences; ++i) {
      EXPECT_EQ(ConstraintOf(request, i).accepted(), two.tokens.at({request.id, i}));
    }
  }
}

// A model guesses for another one on the same device, from a KV cache that it gets when the other
// one has its own. The tokens are those that come without it.
inline void CheckDraftModel(const std::string& device) {
  const TinyModel files({.dtype = "bf16"}), other({.num_layers = 1, .seed = 2, .dtype = "bf16"});
  for (const bool is_same : {true, false}) {
    SCOPED_TRACE(is_same);
    model::LoadOptions options;
    options.source.dir = is_same ? files.dir() : other.dir();
    options.device.device = device;
    options.max_batch_tokens = 64;
    options.warm_up_sequences = 4;
    options.kv.is_later = true;
    auto loader = model::ModelLoader::Open(options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    EXPECT_EQ(loader->model().num_blocks, 0);
    model::LoadedModel model = LoadOn(files, device, /*deterministic=*/true);
    auto draft = (*std::move(loader)).MakeKvCache(model.num_blocks);
    ASSERT_TRUE(draft.ok()) << draft.status();
    EXPECT_EQ(draft->num_blocks, model.num_blocks);
    // The spare block is one more.
    EXPECT_EQ(draft->ranks[0].kv_bytes, draft->bytes_per_block * (model.num_blocks + 1));
    const std::vector<engine::Request> all = OverlapRequests(model.config.vocab_size);
    const std::vector<engine::Request> requests = {all[0], all[1], all[5]};
    const OverlapAnswers plain = AnswerOn(model, requests, true);
    const OverlapAnswers guessed = AnswerOn(model, requests, true, &*draft);
    EXPECT_EQ(guessed.tokens, plain.tokens);
    EXPECT_EQ(guessed.logprobs, plain.logprobs);
    EXPECT_GT(guessed.num_drafts, is_same ? 50 : 0);
    // These are not sampled in the same order, since the draft model is not deterministic.
    if (is_same) {
      EXPECT_GE(guessed.num_hits, guessed.num_drafts / 2);
    }
  }
}

}  // namespace continuo::testing

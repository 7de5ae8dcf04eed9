// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "services/worker/engine/draft/mtp_drafter.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/oracle_drafter.h"
#include "tests/worker/engine/simulated_model.h"

namespace continuo::engine {

// FakeExecutor and FakeAnswer: thousands of schedules a minute.
class FakeModel : public SimulatedModel {
 public:
  SimulatedSizes Begin(std::mt19937& rng) override {
    // With few tokens, answers repeat each other's blocks.
    vocab_size_ = std::uniform_int_distribution<int>(1, 100)(rng) <= 20 ? 3 : 50;
    SimulatedSizes sizes;
    sizes.has_states = std::uniform_int_distribution<int>(1, 100)(rng) <= 40;
    sizes.embeds_percent = 15;
    if (std::uniform_int_distribution<int>(1, 100)(rng) <= 10) {
      has_mtp_ = false;
      return {.embeds_percent = 100, .is_encoder = true, .num_token_types = 3};
    }
    has_mtp_ = std::uniform_int_distribution<int>(1, 100)(rng) <= 30;
    // Drafts of the module are those of the model alone.
    if (!has_mtp_ && std::uniform_int_distribution<int>(1, 100)(rng) <= 30) sizes.num_adapters = 3;
    return sizes;
  }
  int vocab_size() const override { return vocab_size_; }
  absl::StatusOr<std::unique_ptr<model::Executor>> MakeExecutor(const EngineOptions& options,
                                                                std::mt19937& rng) override {
    FakeExecutorOptions fake;
    fake.num_blocks = options.num_blocks;
    fake.block_size = options.block_size;
    fake.num_state_slots = options.num_state_slots;
    fake.vocab_size = vocab_size_;
    fake.has_mtp = has_mtp_;
    fake.is_asynchronous = std::uniform_int_distribution<int>(1, 100)(rng) <= 60;
    const int left_percent = std::uniform_int_distribution<int>(0, 15)(rng);
    fake.leaves_sample = [left_percent, left = std::mt19937(rng())]() mutable {
      return std::uniform_int_distribution<int>(1, 100)(left) <= left_percent;
    };
    auto executor = std::make_unique<FakeExecutor>(fake);
    executor_ = executor.get();
    block_size_ = options.block_size;
    return executor;
  }
  std::shared_ptr<Drafter> MakeDrafter(int percent, uint32_t seed) override {
    if (has_mtp_) {
      return std::make_shared<MtpDrafter>(block_size_, vocab_size_, executor_, &stopped_clock_);
    }
    return std::make_shared<OracleDrafter>(vocab_size_, percent, seed);
  }
  std::vector<int32_t> Answer(const Request& request, int index) override {
    return FakeAnswer(WithoutReceived(request), index, vocab_size_);
  }
  model::TokenScore AnswerScore(const Request& request, int index, int i) override {
    return FakeAnswerScore(request, Answer(request, index), i, vocab_size_);
  }
  model::TokenScore PromptScore(const Request& request, int i) override {
    return FakePromptScore(request, i, vocab_size_);
  }
  std::vector<float> State(const Request& request) override { return FakeState(request); }

 private:
  static Request WithoutReceived(Request request) {
    request.received.clear();
    return request;
  }

  int vocab_size_ = 0, block_size_ = 0;  // of this schedule
  bool has_mtp_ = false;
  FakeExecutor* executor_ = nullptr;
  const ManualClock stopped_clock_;  // drafting takes no time on it
};

}  // namespace continuo::engine

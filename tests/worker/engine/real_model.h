// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/model/load/model_loader.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/engine/simulated_model.h"

namespace continuo::engine {

// A model from files, in one format and on one instruction set. Schedules run on 1, 2 or 4 ranks
// with one or two threads each. The answer to a request alone comes from plans made here, without
// the scheduler: on one rank and one thread, the whole prompt in one step, then one token a step.
class RealModel : public SimulatedModel {
 public:
  // Takes the folder, instruction set, adapters, weights and type of keys and values from
  // `options`.
  static absl::StatusOr<std::unique_ptr<RealModel>> Load(model::LoadOptions options);

  SimulatedSizes Begin(std::mt19937& rng) override;
  int vocab_size() const override { return vocab_size_; }
  absl::StatusOr<std::unique_ptr<model::Executor>> MakeExecutor(const EngineOptions& options,
                                                                std::mt19937& rng) override;
  // Returns one that proposes the request's own answer with some wrong tokens, or prompt lookup, or
  // the same weights in int4 as a draft model, or the model's MTP module where that is read.
  std::shared_ptr<Drafter> MakeDrafter(int percent, uint32_t seed) override;

  std::vector<int32_t> Answer(const Request& request, int index) override;
  model::TokenScore AnswerScore(const Request& request, int index, int i) override;
  model::TokenScore PromptScore(const Request& request, int i) override;
  std::vector<float> State(const Request& request) override;

  // Number of schedules that ran on 1, 2 and 4 ranks.
  const std::map<int, int>& num_schedules() const { return num_schedules_; }

 private:
  struct Alone {
    std::vector<std::vector<int32_t>> answers;  // by index
    std::vector<std::vector<model::TokenScore>> scores;
    std::vector<model::TokenScore> prompt_scores;
    std::vector<float> state;
  };
  class AlonePlans;

  RealModel(const model::LoadOptions& options, model::LoadedModel alone);
  const Alone& Find(const Request& request);
  // `answer` is what the plan's samples follow.
  model::StepResult RunAlone(const Request& request, const model::StepPlan& plan,
                             const std::vector<int32_t>& answer);

  const model::LoadOptions options_;
  const model::LoadedModel loaded_;  // runs requests alone
  const int vocab_size_;
  int block_size_ = 0;                          // of this schedule
  const ManualClock stopped_clock_;             // drafting takes no time on it
  model::Executor* executor_ = nullptr;         // of this schedule
  std::vector<model::LoadedAdapter> adapters_;  // likewise
  std::map<RequestId, Alone> alone_;            // requests of this schedule
  std::map<int, int> num_schedules_;
};

}  // namespace continuo::engine

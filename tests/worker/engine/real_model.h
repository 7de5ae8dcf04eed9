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

// A model from files, in one format on one instruction set. Schedules run on 1, 2 or 4 ranks of one
// or two threads; what a request is answered alone comes from plans made here, without the
// scheduler: on one rank and one thread, the whole prompt in one step, then a row a step.
class RealModel : public SimulatedModel {
 public:
  // Of `options` the folder, instruction set, weights and type of keys and values count.
  static absl::StatusOr<std::unique_ptr<RealModel>> Load(model::LoadOptions options);

  SimulatedSizes Begin(std::mt19937& rng) override;
  int vocab_size() const override { return vocab_size_; }
  absl::StatusOr<std::unique_ptr<model::Executor>> MakeExecutor(const EngineOptions& options,
                                                                std::mt19937& rng) override;
  // The request's own answer with wrong tokens among it, prompt lookup, or the same weights in int4
  // as a draft model.
  std::shared_ptr<Drafter> MakeDrafter(int percent, uint32_t seed) override;

  std::vector<int32_t> Answer(const Request& request, int index) override;
  model::TokenScore AnswerScore(const Request& request, int index, int i) override;
  model::TokenScore PromptScore(const Request& request, int i) override;

  // Schedules that ran on 1, 2 and 4 ranks.
  const std::map<int, int>& num_schedules() const { return num_schedules_; }

 private:
  struct Alone {
    std::vector<std::vector<int32_t>> answers;  // by index
    std::vector<std::vector<model::TokenScore>> scores;
    std::vector<model::TokenScore> prompt_scores;
  };
  class Draws;

  RealModel(const model::LoadOptions& options, model::LoadedModel alone);
  const Alone& Find(const Request& request);
  model::StepResult RunAlone(const Request& request, const model::StepPlan& plan);

  const model::LoadOptions options_;
  const model::LoadedModel loaded_;  // runs requests alone
  const int vocab_size_;
  const ManualClock stopped_clock_;   // by which guessing takes no time
  std::map<RequestId, Alone> alone_;  // of this schedule
  std::map<int, int> num_schedules_;
};

}  // namespace continuo::engine

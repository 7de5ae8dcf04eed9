// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// Limits of the random requests of one schedule.
struct SimulatedSizes {
  int longest_prefix = 16, longest_tail = 8, longest_answer = 16;  // tokens
  int most_requests = 22;
  int widest = 128;           // sequences of a request
  int logprobs_percent = 20;  // of requests
  bool has_states = false;    // the model has layers with state
  int embeds_percent = 0;     // of schedules, whose requests read states
  bool is_encoder = false;    // of schedules that read states alone: prompts are whole
  int num_token_types = 1;    // of an encoder
  int num_adapters = 0;       // requests may name them, from 0 on
};

// The model that a Simulation runs, and the answer that the same model gives to each request alone,
// without cache, chunks, drafts or neighbours. Not thread-safe.
class SimulatedModel {
 public:
  virtual ~SimulatedModel() = default;

  // Begins a schedule, and forgets the requests of the last one.
  virtual SimulatedSizes Begin(std::mt19937& rng) = 0;
  virtual int vocab_size() const = 0;  // of this schedule
  // Returns what runs the plans of this schedule, for the blocks and tokens of `options`.
  virtual absl::StatusOr<std::unique_ptr<model::Executor>> MakeExecutor(
      const EngineOptions& options, std::mt19937& rng) = 0;
  // Returns a drafter of which about `percent` of the drafts are right.
  virtual std::shared_ptr<Drafter> MakeDrafter(int percent, uint32_t seed) = 0;

  // Returns the whole answer of one sequence, whatever was received. It ends by stop ids,
  // min_tokens, max_tokens and a scripted constraint alone.
  virtual std::vector<int32_t> Answer(const Request& request, int index) = 0;
  // Return the score of the i-th token of that answer, and of prompt[i + 1] given prompt[0…i].
  virtual model::TokenScore AnswerScore(const Request& request, int index, int i) = 0;
  virtual model::TokenScore PromptScore(const Request& request, int i) = 0;
  // Returns the pooled state of the prompt.
  virtual std::vector<float> State(const Request& request) = 0;
};

}  // namespace continuo::engine

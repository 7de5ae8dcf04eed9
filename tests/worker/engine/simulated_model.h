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

// How large the requests of one schedule get.
struct SimulatedSizes {
  int longest_prefix = 16, longest_tail = 8, longest_answer = 16;  // tokens
  int most_requests = 22;
  int widest = 128;           // sequences of a request
  int logprobs_percent = 20;  // of requests
};

// The model that a Simulation runs, and what each request is answered alone: by the same model,
// without cache, chunks, drafts or neighbours. One thread.
class SimulatedModel {
 public:
  virtual ~SimulatedModel() = default;

  // Begins a schedule: whatever is remembered of the last one's requests is forgotten.
  virtual SimulatedSizes Begin(std::mt19937& rng) = 0;
  virtual int vocab_size() const = 0;  // of this schedule
  // Runs the plans of this schedule: `options` says of how many blocks and rows.
  virtual absl::StatusOr<std::unique_ptr<model::Executor>> MakeExecutor(
      const EngineOptions& options, std::mt19937& rng) = 0;
  // Each draft is right with about `percent`.
  virtual std::shared_ptr<Drafter> MakeDrafter(int percent, uint32_t seed) = 0;

  // The whole answer of one sequence; what was received plays no part. Ends by stop ids,
  // min_tokens and max_tokens alone.
  virtual std::vector<int32_t> Answer(const Request& request, int index) = 0;
  // The score of the i-th token of that answer, and of prompt[i + 1] given prompt[0…i].
  virtual model::TokenScore AnswerScore(const Request& request, int index, int i) = 0;
  virtual model::TokenScore PromptScore(const Request& request, int i) = 0;
};

}  // namespace continuo::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "services/worker/engine/types/request.h"
#include "services/worker/model/executor.h"
#include "tests/testing/manual_clock.h"

namespace continuo {

struct FakeExecutorOptions {
  int num_blocks = 64;
  int block_size = 4;
  int num_state_slots = 0;
  int vocab_size = 50;
  bool has_mtp = false;  // plans may be of a module for multi-token prediction
  // Virtual time: each step advances `clock` by the `cost` of its plan.
  ManualClock* clock = nullptr;
  std::function<absl::Duration(const model::StepPlan&)> cost;
  bool is_asynchronous = false;
  // Returns whether the device leaves a sample to the host; called for each. An overlapped step
  // then goes on with token 0.
  std::function<bool()> leaves_sample;
};

// A model whose KV cell holds a hash of its token and of the cell before it, read back through the
// block table, and whose next token is a hash of every cell it can see and of how it is sampled
// (seed, index, position, penalties, bias, mask). A cell of a sequence with an adapter is another
// one. With slots for states, each holds what the KV
// cell of the same token does, and a row that reads another state is an error. Any mistake in
// paging, chunking, preemption, forks, copies or prefix reuse changes the text; FakeAnswer is the
// same function without a cache. If it is asynchronous, two steps may be in flight, as Executor has
// it. A module for multi-token prediction gives the tokens that the model will give, if its plans
// name the right hidden states. A state that is read is a hash of every cell that its row sees. A
// badly formed plan, or one that comes too early, is an Internal
// error.
class FakeExecutor : public model::Executor {
 public:
  explicit FakeExecutor(const FakeExecutorOptions& options);

  // Runs the plans in their order, as a device does.
  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override;
  absl::StatusOr<model::StepResult> Finish() override;
  bool IsAsynchronous() const override { return options_.is_asynchronous; }

  // From now on every Run fails with `status`. Any thread may call it.
  void FailWith(absl::Status status);
  // The numbers of steps and rows so far. Any thread may call them.
  int64_t num_steps() const { return num_steps_; }
  int64_t num_rows() const { return num_rows_; }
  // The same of steps of the module, which are not among the others.
  int64_t num_mtp_steps() const { return num_mtp_steps_; }
  // How often a row of the module has read a position whose keys and values it has not computed, or
  // for another next token.
  int64_t num_mtp_gaps() const { return num_mtp_gaps_; }

 private:
  struct Started {
    model::StepResult result;
    std::vector<bool> is_left;  // by sample: it is left to the host
    bool is_overtaken = false;
  };

  absl::Status Check(const model::StepPlan& plan);
  // Returns the tokens of the plan's rows, with those that the step before has sampled.
  absl::Status TakeTokens(const model::StepPlan& plan);
  absl::Status CheckRows(const model::StepPlan& plan, int sequence);
  absl::Status CheckStates(const model::StepPlan& plan);
  // Runs the rows of one sequence through its state, once its cells have been written.
  absl::Status RunStates(const model::StepPlan& plan, int sequence);

  // A row leaves this to the module: its cell, and the hash of all that it sees.
  struct Hidden {
    uint64_t cell = 0, context = 0;
  };

  absl::Status RunMtp(const model::StepPlan& plan);

  const FakeExecutorOptions options_;
  std::vector<uint64_t> cells_;      // [num_blocks, block_size]
  std::vector<uint64_t> states_;     // [num_state_slots]
  std::vector<int64_t> written_in_;  // per slot: the last step that wrote it
  std::vector<int64_t> read_in_;     // per block: the last step that had it in a table …
  std::vector<int32_t> reader_;      // … and the last sequence that had
  std::vector<uint32_t> mask_;
  std::vector<int32_t> token_ids_;  // of the plan's rows
  std::deque<Started> started_;
  int64_t step_ = 0;
  std::vector<Hidden> hidden_;       // of the last step's rows, or of the module's sampled ones
  bool hidden_is_guessed_ = false;   // the module made it: the model has not seen what is before
  std::vector<uint64_t> mtp_cells_;  // per slot: the cell behind it, for which it was computed
  std::atomic<int64_t> num_steps_ = 0, num_rows_ = 0, num_mtp_steps_ = 0, num_mtp_gaps_ = 0;
  std::atomic<bool> fails_ = false;
  absl::Status failure_;
};

// The whole answer of one sequence, received tokens included, computed without a cache: what the
// engine must give whatever it did on the way. Ends by stop ids, min_tokens, max_tokens and a
// scripted constraint alone.
std::vector<int32_t> FakeAnswer(const engine::Request& request, int index, int vocab_size);
// The score of the i-th token of an answer, or of prompt[i + 1] given prompt[0…i].
model::TokenScore FakeAnswerScore(const engine::Request& request,
                                  const std::vector<int32_t>& answer, int i, int vocab_size);
model::TokenScore FakePromptScore(const engine::Request& request, int i, int vocab_size);
// The pooled state of a request's prompt, of kFakeStateSize numbers.
inline constexpr int kFakeStateSize = 4;
std::vector<float> FakeState(const engine::Request& request);

}  // namespace continuo

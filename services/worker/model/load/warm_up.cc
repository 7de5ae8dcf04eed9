// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/warm_up.h"

#include <algorithm>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "services/base/status_macros.h"
#include "services/worker/model/run/step_shape.h"

namespace continuo::model {
namespace {

// A plan whose sequences all lie in the spare block.
class SparePlan {
 public:
  SparePlan(const WarmUpOptions& options, int columns) : options_(options) {
    plan_.max_blocks = columns;
  }

  // Adds a sequence with `rows` rows; all of them are sampled, or only the last one.
  void Add(int rows, bool samples_all) {
    for (int i = 0; i < rows; ++i) {
      plan_.token_ids.push_back(0);
      plan_.positions.push_back(i);
      plan_.kv_slots.push_back(options_.spare_block * options_.block_size +
                               i % options_.block_size);
    }
    plan_.sequence_ids.push_back(static_cast<SequenceId>(plan_.num_seqs()) + 1);
    plan_.query_begin.push_back(plan_.num_rows());
    plan_.kv_len.push_back(rows);
    const int used = (rows + options_.block_size - 1) / options_.block_size;
    plan_.block_tables.insert(plan_.block_tables.end(), static_cast<size_t>(used),
                              options_.spare_block);
    plan_.block_tables.insert(plan_.block_tables.end(),
                              static_cast<size_t>(plan_.max_blocks - used), -1);
    for (int i = samples_all ? 0 : rows - 1; i < rows; ++i) {
      plan_.sample_rows.push_back(plan_.num_rows() - rows + i);
      plan_.sample_targets.push_back(-1);
      plan_.sampling.push_back({.temperature = 0});
      plan_.bias_begin.push_back(0);
      plan_.seen_begin.push_back(0);
    }
    plan_.sample_begin.push_back(plan_.num_samples());
  }
  void Copy() { plan_.block_copies.push_back({options_.spare_block, options_.spare_block}); }
  const StepPlan& plan() const { return plan_; }

 private:
  const WarmUpOptions& options_;
  StepPlan plan_;
};

absl::Status RunOnce(Executor& executor, const SparePlan& plan, const WarmUpOptions& options) {
  const auto run = [&] { return executor.Run(plan.plan(), [](std::span<uint32_t>) {}).status(); };
  if (options.on_stuck == nullptr) return run();
  std::promise<void> ended;
  std::thread watch([&, end = ended.get_future()] {
    const auto limit = absl::ToChronoMicroseconds(options.step_limit);
    if (end.wait_for(limit) == std::future_status::ready) return;
    options.on_stuck(absl::DeadlineExceededError(absl::StrCat(
        "a step of ", plan.plan().num_rows(),
        " rows hangs before the first request: ", absl::FormatDuration(options.step_limit))));
  });
  const absl::Status status = run();
  ended.set_value();
  watch.join();
  return status;
}

}  // namespace

absl::Status WarmUp(Executor& executor, const WarmUpOptions& options,
                    absl::FunctionRef<bool(int)> uses_graphs) {
  const int most_blocks = (options.context_length + options.block_size - 1) / options.block_size;
  // The largest steps come first, so that memory grows once. Prompts whose every row is scored:
  SparePlan prompts(options, most_blocks);
  for (int left = options.max_rows; left > 0;) {
    const int rows = std::min(left, options.context_length);
    prompts.Add(rows, /*samples_all=*/true);
    left -= rows;
  }
  RETURN_IF_ERROR(RunOnce(executor, prompts, options));
  // A prompt beside as many sequences as there may be.
  SparePlan mixed(options, most_blocks);
  int left = options.max_rows;
  const int64_t widest = std::max<int64_t>(1, kMostPaddedEntries / most_blocks);
  int others = static_cast<int>(std::min<int64_t>({options.max_sequences, left, widest}));
  for (; others > 0; --others) {
    const int rows = std::min(left - (others - 1), options.context_length);
    mixed.Add(rows, /*samples_all=*/false);
    left -= rows;
  }
  mixed.Copy();
  RETURN_IF_ERROR(RunOnce(executor, mixed, options));
  std::vector<int> columns = AllPaddedBlocks(most_blocks);
  std::vector<int> rows = AllPaddedRows(options.max_sequences, options.max_rows);
  std::ranges::reverse(columns);
  std::ranges::reverse(rows);
  for (const int blocks : columns) {
    for (const int n : rows) {
      if (!IsPadded(n, blocks) || !uses_graphs(n)) continue;
      SparePlan decodes(options, blocks);
      for (int i = 0; i < n; ++i) decodes.Add(1, /*samples_all=*/false);
      for (int time = 0; time < 2; ++time) RETURN_IF_ERROR(RunOnce(executor, decodes, options));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::model

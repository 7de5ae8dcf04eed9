// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/warm_up.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "services/base/status_macros.h"
#include "services/worker/model/run/step_shape.h"

namespace continuo::model {
namespace {

// Returns parameters of a sample of each kind. Devices load their kernels at the first launch.
std::vector<SamplingParams> SamplesOfEachKind() {
  return {{.temperature = 0},
          {},
          {.top_k = 40},
          {.top_p = 0.9f},
          {.min_p = 0.05f},
          {.temperature = 0, .num_logprobs = 0},
          {.num_logprobs = kernels::kMaxAlternatives},
          {.repetition_penalty = 1.1f, .presence_penalty = 0.1f, .frequency_penalty = 0.1f},
          {.temperature = 0, .masked = true}};
}

// Prompts of so many rows may be multiplied by different kernels.
constexpr int kPromptRows[] = {2048, 1024, 256, 64};

// A plan whose sequences all lie in the spare block.
class SparePlan {
 public:
  SparePlan(const WarmUpOptions& options, int columns) : options_(options) {
    plan_.max_blocks = columns;
  }

  // Adds a sequence with `rows` rows; all of them are sampled, or only the last one. The first
  // row's token is `first`.
  void Add(int rows, bool samples_all, int32_t first = 0) {
    for (int i = 0; i < rows; ++i) {
      plan_.token_ids.push_back(i == 0 ? first : 0);
      plan_.positions.push_back(i);
      plan_.kv_slots.push_back(options_.spare_block * options_.block_size +
                               i % options_.block_size);
    }
    if (options_.has_states) {
      plan_.state_from.push_back(-1);
      plan_.state_to.resize(plan_.token_ids.size(), -1);
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
      plan_.sample_targets.push_back(options_.reads_states ? kReadState : kSampleToken);
      plan_.sampling.push_back({.temperature = 0});
      plan_.bias_begin.push_back(0);
      plan_.seen_begin.push_back(0);
    }
    plan_.sample_begin.push_back(plan_.num_samples());
  }
  // Gives the plan's samples these parameters, from the first one on.
  void SampleWith(std::span<const SamplingParams> params) {
    for (size_t i = 0; i < plan_.sampling.size(); ++i) {
      if (i < params.size()) plan_.sampling[i] = params[i];
      if (i < params.size() && HasPenalty(params[i])) {
        plan_.seen.push_back({.token_id = 0, .answer_count = 1});
        plan_.biases.push_back({.token_id = 0, .bias = 1});
      }
      plan_.seen_begin[i + 1] = static_cast<int32_t>(plan_.seen.size());
      plan_.bias_begin[i + 1] = static_cast<int32_t>(plan_.biases.size());
    }
  }
  // Gives the sequence that was added last an adapter.
  void Adapt(int32_t adapter) {
    plan_.adapters.resize(plan_.sequence_ids.size(), kNoAdapter);
    plan_.adapters.back() = adapter;
  }
  void Copy() { plan_.block_copies.push_back({options_.spare_block, options_.spare_block}); }
  // Makes it a plan of the MTP module, behind the same rows of the model.
  SparePlan& OfModule() {
    plan_.state_from.clear();
    plan_.state_to.clear();
    plan_.hidden_rows.resize(plan_.token_ids.size());
    std::iota(plan_.hidden_rows.begin(), plan_.hidden_rows.end(), 0);
    return *this;
  }
  const StepPlan& plan() const { return plan_; }

 private:
  const WarmUpOptions& options_;
  StepPlan plan_;
};

void AllowAll(std::span<uint32_t> mask) { std::ranges::fill(mask, ~uint32_t{0}); }

// Runs plans whose steps are in flight together.
absl::Status RunTogether(Executor& executor, std::initializer_list<const SparePlan*> plans) {
  for (const SparePlan* const plan : plans) {
    RETURN_IF_ERROR(executor.Start(plan->plan(), AllowAll));
  }
  for (size_t i = 0; i < plans.size(); ++i) RETURN_IF_ERROR(executor.Finish().status());
  return absl::OkStatus();
}

absl::Status Run(Executor& executor, std::initializer_list<const SparePlan*> plans,
                 const WarmUpOptions& options) {
  if (options.on_stuck == nullptr) return RunTogether(executor, plans);
  std::promise<void> ended;
  std::thread watch([&, end = ended.get_future()] {
    const auto limit = absl::ToChronoMicroseconds(options.step_limit);
    if (end.wait_for(limit) == std::future_status::ready) return;
    options.on_stuck(absl::DeadlineExceededError(absl::StrCat(
        "a step of ", (*plans.begin())->plan().num_rows(),
        " rows hangs before the first request: ", absl::FormatDuration(options.step_limit))));
  });
  const absl::Status status = RunTogether(executor, plans);
  ended.set_value();
  watch.join();
  return status;
}

// Runs a plan, and then the module's behind it, where there is one.
absl::Status RunBoth(Executor& executor, SparePlan& plan, const WarmUpOptions& options) {
  RETURN_IF_ERROR(Run(executor, {&plan}, options));
  return options.has_mtp ? Run(executor, {&plan.OfModule()}, options) : absl::OkStatus();
}

}  // namespace

absl::Status WarmUp(Executor& executor, const WarmUpOptions& options,
                    absl::FunctionRef<bool(int)> uses_graphs) {
  const int most_blocks = (options.context_length + options.block_size - 1) / options.block_size;
  // The largest steps come first, so that memory grows once. Prompts whose every row is scored:
  const std::vector<SamplingParams> samples = SamplesOfEachKind();
  for (std::span<const SamplingParams> left_samples = samples; !left_samples.empty();) {
    SparePlan prompts(options, most_blocks);
    for (int left = options.max_rows; left > 0;) {
      const int rows = std::min(left, options.context_length);
      prompts.Add(rows, /*samples_all=*/true);
      left -= rows;
    }
    const size_t num_sampled = std::min(left_samples.size(), static_cast<size_t>(options.max_rows));
    prompts.SampleWith(left_samples.first(num_sampled));
    left_samples = left_samples.subspan(num_sampled);
    RETURN_IF_ERROR(RunBoth(executor, prompts, options));
  }
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
  if (executor.IsAsynchronous()) {
    // The next step takes tokens that the host does not know yet.
    SparePlan next(options, most_blocks);
    next.Add(1, /*samples_all=*/false, SampledBy(0));
    RETURN_IF_ERROR(Run(executor, {&mixed, &next}, options));
  } else {
    RETURN_IF_ERROR(Run(executor, {&mixed}, options));
  }
  for (const int rows : kPromptRows) {
    if (rows >= options.max_rows || rows > options.context_length) continue;
    SparePlan prompt(options, most_blocks);
    prompt.Add(rows, /*samples_all=*/false);
    RETURN_IF_ERROR(RunBoth(executor, prompt, options));
  }
  if (!options.adapters.empty()) {
    SparePlan adapted(options, most_blocks);
    const auto sequences = static_cast<size_t>(std::min(options.max_rows, options.max_sequences));
    for (size_t i = 0; i < std::min(sequences, options.adapters.size()); ++i) {
      adapted.Add(1, /*samples_all=*/false);
      adapted.Adapt(options.adapters[i]);
    }
    RETURN_IF_ERROR(Run(executor, {&adapted}, options));
  }
  std::vector<int> columns = AllPaddedBlocks(most_blocks);
  std::vector<int> rows = AllPaddedRows(options.max_sequences, options.max_rows);
  std::ranges::reverse(columns);
  std::ranges::reverse(rows);
  for (const int blocks : columns) {
    for (const int n : rows) {
      if (!IsPadded(n, blocks)) continue;
      // Without a graph the width of tables decides nothing.
      const int times = uses_graphs(n) ? 2 : blocks == columns.back() ? 1 : 0;
      if (times == 0) continue;
      SparePlan decodes(options, blocks);
      for (int i = 0; i < n; ++i) decodes.Add(1, /*samples_all=*/false);
      for (int time = 1; time < times; ++time) RETURN_IF_ERROR(Run(executor, {&decodes}, options));
      RETURN_IF_ERROR(RunBoth(executor, decodes, options));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::model

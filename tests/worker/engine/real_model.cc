// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/engine/real_model.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/draft/model_drafter.h"
#include "services/worker/engine/draft/mtp_drafter.h"
#include "services/worker/engine/draft/prompt_lookup.h"
#include "tests/testing/next_token_mask.h"

namespace continuo::engine {
namespace {

constexpr int kLongest = 960;  // tokens of a sequence
constexpr int kBlockSize = 16;

int Pick(std::mt19937& rng, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(rng);
}

// Proposes the answer of the request alone, with a wrong token now and then.
class ReplayDrafter : public Drafter {
 public:
  ReplayDrafter(RealModel* model, int percent, uint32_t seed)
      : model_(*model), percent_(percent), rng_(seed) {}
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override {
    drafts.clear();
    const std::vector<int32_t> answer = model_.Answer(s.request->request, s.index);
    for (size_t i = s.answer.size(); static_cast<int>(drafts.size()) < most; ++i) {
      // It also proposes tokens beyond the end.
      const bool right = i < answer.size() && Pick(rng_, 1, 100) <= percent_;
      drafts.push_back(right ? answer[i] : Pick(rng_, 0, model_.vocab_size() - 1));
    }
  }

 private:
  RealModel& model_;
  const int percent_;
  std::mt19937 rng_;
};

}  // namespace

// Makes the plans of one request alone, which has the first blocks to itself.
class RealModel::AlonePlans {
 public:
  AlonePlans(const Request& request, int vocab_size, bool has_states)
      : request_(request), vocab_size_(vocab_size), has_states_(has_states) {}

  // Adds rows for `tokens` from position `begin` on.
  void AddRows(int begin, std::span<const int32_t> tokens) {
    plan_ = model::StepPlan();
    plan_.token_ids.assign(tokens.begin(), tokens.end());
    if (begin == 0) plan_.token_types = request_.token_types;
    const int end = begin + static_cast<int>(tokens.size());
    for (int at = begin; at < end; ++at) {
      plan_.positions.push_back(at);
      plan_.kv_slots.push_back(at);
    }
    plan_.sequence_ids = {1};
    if (request_.adapter != model::kNoAdapter) plan_.adapters = {request_.adapter};
    if (has_states_) {
      // Slot 0 keeps the state behind the prompt, slot 1 is that of the answer.
      const bool is_first = begin == static_cast<int>(request_.prompt.size());
      plan_.state_from = {begin == 0 ? kNoState : is_first ? 0 : 1};
      plan_.state_to.assign(tokens.size(), kNoState);
      plan_.state_to.back() = begin == 0 ? 0 : 1;
    }
    plan_.query_begin.push_back(plan_.num_rows());
    plan_.kv_len = {end};
    plan_.max_blocks = (end + kBlockSize - 1) / kBlockSize;
    for (int block = 0; block < plan_.max_blocks; ++block) plan_.block_tables.push_back(block);
    plan_.sample_begin.push_back(0);
  }
  void AddScored(int row, int32_t target) {
    AddSample(row, target);
    plan_.sampling.push_back({.num_logprobs = request_.num_prompt_logprobs});
    plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
    plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
  }
  void AddSample(int row, int index, const std::vector<int32_t>& answer) {
    AddSample(row, -1);
    model::SamplingParams& sampling = plan_.sampling.emplace_back(request_.sampling);
    sampling.sequence_index = index;
    sampling.masked = !NextTokenMask(request_, answer, vocab_size_).empty();
    plan_.biases.insert(plan_.biases.end(), request_.biases.begin(), request_.biases.end());
    plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
    if (model::HasPenalty(request_.sampling)) {
      std::map<int32_t, int32_t> counts;
      for (const int32_t id : request_.prompt) counts[id] += 0;
      for (const int32_t id : answer) ++counts[id];
      for (const auto& [id, count] : counts) plan_.seen.push_back({id, count});
    }
    plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
  }
  const model::StepPlan& plan() const { return plan_; }

 private:
  void AddSample(int row, int32_t target) {
    plan_.sample_rows.push_back(row);
    plan_.sample_targets.push_back(target);
    ++plan_.sample_begin.back();
  }

  const Request& request_;
  const int vocab_size_;
  const bool has_states_;
  model::StepPlan plan_;
};

absl::StatusOr<std::unique_ptr<RealModel>> RealModel::Load(model::LoadOptions options) {
  options.reads_states = true;
  options.source.max_context_tokens = kLongest;
  options.kv.block_size = kBlockSize;
  options.kv.num_blocks = (kLongest + kBlockSize - 1) / kBlockSize;
  options.max_batch_tokens = kLongest;
  ASSIGN_OR_RETURN(model::LoadedModel loaded, model::LoadModel(options));
  return std::unique_ptr<RealModel>(new RealModel(options, std::move(loaded)));
}

RealModel::RealModel(const model::LoadOptions& options, model::LoadedModel alone)
    : options_(options), loaded_(std::move(alone)), vocab_size_(loaded_.config.vocab_size) {}

SimulatedSizes RealModel::Begin(std::mt19937& rng) {
  alone_.clear();
  SimulatedSizes sizes{.most_requests = 10, .widest = 24, .logprobs_percent = 80};
  // Some prompts go beyond 128 positions, where attention begins a new KV chunk.
  if (Pick(rng, 1, 4) == 1)
    sizes = {.longest_prefix = 280, .most_requests = 5, .widest = 6, .logprobs_percent = 80};
  sizes.has_states = loaded_.config.has_states();
  sizes.is_encoder = loaded_.config.encoder.is_encoder;
  sizes.num_token_types = std::max(1, loaded_.config.encoder.num_token_types);
  sizes.embeds_percent = sizes.is_encoder ? 100 : 25;
  sizes.num_adapters = static_cast<int>(loaded_.adapters.size());
  return sizes;
}

absl::StatusOr<std::unique_ptr<model::Executor>> RealModel::MakeExecutor(
    const EngineOptions& engine, std::mt19937& rng) {
  model::LoadOptions options = options_;
  options.tensor_parallel = 1 << Pick(rng, 0, 2);
  options.device.num_threads = options.tensor_parallel * Pick(rng, 1, 2);
  options.kv.block_size = engine.block_size;
  options.kv.num_blocks = engine.num_blocks;
  options.state_slots.most = engine.num_state_slots;
  options.source.max_context_tokens =
      std::min<int>(kLongest, engine.num_blocks * engine.block_size);
  options.max_batch_tokens = engine.max_batch_tokens;
  if (engine.whole_prompts) {
    int& context = options.source.max_context_tokens;
    context = std::min(context, engine.max_batch_tokens);
  }
  ASSIGN_OR_RETURN(model::LoadedModel loaded, model::LoadModel(options));
  if (loaded.fingerprint.weights != loaded_.fingerprint.weights) {
    return absl::InternalError("the fingerprint depends on ranks or threads");
  }
  ++num_schedules_[options.tensor_parallel];
  executor_ = loaded.executor.get();
  adapters_ = std::move(loaded.adapters);
  block_size_ = engine.block_size;
  return std::move(loaded.executor);
}

std::shared_ptr<Drafter> RealModel::MakeDrafter(int percent, uint32_t seed) {
  if (options_.reads_mtp) {
    return std::make_shared<MtpDrafter>(block_size_, vocab_size_, executor_, &stopped_clock_);
  }
  if (seed % 3 == 0) return std::make_shared<PromptLookup>();
  // A draft model has no states.
  if (seed % 3 == 1 || loaded_.config.has_states())
    return std::make_shared<ReplayDrafter>(this, percent, seed);
  model::LoadOptions options = options_;
  options.adapters.clear();
  options.precision.weights = "int4";
  options.kv.block_size = 1 + static_cast<int>(seed / 3 % 9);
  options.kv.num_blocks = (kLongest + options.kv.block_size - 1) / options.kv.block_size;
  // Some steps have fewer tokens than allowed.
  options.max_batch_tokens = 1 + static_cast<int>(seed / 27 % 60);
  auto draft = model::LoadModel(options);
  CONTINUO_CHECK(draft.ok());
  return std::make_shared<ModelDrafter>(
      ModelDrafterOptions{.num_blocks = draft->num_blocks,
                          .block_size = draft->block_size,
                          .vocab_size = vocab_size_,
                          .target_vocab_size = vocab_size_,
                          .context_length = draft->config.context_length,
                          .max_batch_tokens = options.max_batch_tokens},
      std::move(draft->executor), &stopped_clock_);
}

model::StepResult RealModel::RunAlone(const Request& request, const model::StepPlan& plan,
                                      const std::vector<int32_t>& answer) {
  auto result = loaded_.executor->Run(plan, [&](std::span<uint32_t> mask) {
    const std::vector<uint32_t> one = NextTokenMask(request, answer, vocab_size_);
    for (size_t at = 0; at < mask.size(); at += one.size()) {
      std::ranges::copy(one, mask.begin() + static_cast<ptrdiff_t>(at));
    }
  });
  CONTINUO_CHECK(result.ok());
  return *std::move(result);
}

namespace {

// The mean of states, in doubles; of one, that one.
std::vector<float> MeanOf(const std::vector<std::vector<float>>& states) {
  std::vector<double> sum(states[0].size());
  for (const std::vector<float>& state : states) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(state[i]);
  }
  std::vector<float> mean;
  for (const double value : sum) {
    mean.push_back(static_cast<float>(value / static_cast<double>(states.size())));
  }
  return mean;
}

}  // namespace

const RealModel::Alone& RealModel::Find(const Request& request) {
  const auto [it, is_new] = alone_.try_emplace(request.id);
  Alone& alone = it->second;
  if (!is_new) return alone;
  const auto n = static_cast<size_t>(request.num_sequences);
  alone.answers.resize(n);
  alone.scores.resize(n);
  const auto finished = [&](const std::vector<int32_t>& answer) {
    return static_cast<int>(answer.size()) >= request.max_tokens ||
           EndOf(request, answer) != FinishReason::kNone;
  };
  const auto take = [&](model::StepResult& result, size_t sample, size_t index) {
    alone.answers[index].push_back(result.token_ids[sample]);
    alone.scores[index].push_back(std::move(result.scores[sample]));
  };

  const auto prompt_tokens = static_cast<int>(request.prompt.size());
  AlonePlans plans(request, vocab_size_, loaded_.config.has_states());
  plans.AddRows(0, request.prompt);
  size_t num_scored = 0;
  if (request.num_prompt_logprobs >= 0) {
    for (int i = 0; i + 1 < prompt_tokens; ++i, ++num_scored) {
      plans.AddScored(i, request.prompt[static_cast<size_t>(i) + 1]);
    }
  }
  const auto states = [&](Pooling pooling) {
    return request.reads_state && request.pooling == pooling;
  };
  if (states(Pooling::kFirst)) plans.AddScored(0, model::kReadState);
  if (states(Pooling::kLast)) plans.AddScored(prompt_tokens - 1, model::kReadState);
  for (int i = 0; states(Pooling::kMean) && i < prompt_tokens; ++i) {
    plans.AddScored(i, model::kReadState);
  }
  if (request.max_tokens > 0) {
    for (size_t i = 0; i < n; ++i) plans.AddSample(prompt_tokens - 1, static_cast<int>(i), {});
  }
  model::StepResult result = RunAlone(request, plans.plan(), {});
  if (request.reads_state) alone.state = MeanOf(result.states);
  for (size_t i = 0; i < num_scored; ++i) {
    alone.prompt_scores.push_back(std::move(result.scores[i]));
  }
  for (size_t i = 0; i < n && request.max_tokens > 0; ++i) take(result, num_scored + i, i);
  // Runs one sequence after the other in the same blocks.
  for (size_t i = 0; i < n; ++i) {
    std::vector<int32_t>& answer = alone.answers[i];
    while (!finished(answer)) {
      const int position = prompt_tokens + static_cast<int>(answer.size()) - 1;
      plans.AddRows(position, std::span(answer).last(1));
      plans.AddSample(0, static_cast<int>(i), answer);
      model::StepResult next = RunAlone(request, plans.plan(), answer);
      take(next, 0, i);
    }
  }
  return alone;
}

std::vector<int32_t> RealModel::Answer(const Request& request, int index) {
  return Find(request).answers[static_cast<size_t>(index)];
}

model::TokenScore RealModel::AnswerScore(const Request& request, int index, int i) {
  return Find(request).scores[static_cast<size_t>(index)][static_cast<size_t>(i)];
}

model::TokenScore RealModel::PromptScore(const Request& request, int i) {
  return Find(request).prompt_scores[static_cast<size_t>(i)];
}

std::vector<float> RealModel::State(const Request& request) { return Find(request).state; }

}  // namespace continuo::engine

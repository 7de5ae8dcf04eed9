// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/worker/engine/calibration.h"

namespace continuo::engine {
namespace {

constexpr int kLeastRows = 16;  // that a step of the draft model takes, however long they last

}  // namespace

ModelDrafter::ModelDrafter(const ModelDrafterOptions& options,
                           std::unique_ptr<model::Executor> executor, const Clock* clock)
    : options_(options), executor_(std::move(executor)), clock_(*clock) {
  CONTINUO_CHECK(options.num_blocks >= 1 && options.block_size >= 1 && options.max_rows >= 1);
  for (BlockId block = options.num_blocks; block-- > 0;) free_.push_back(block);
}

ModelDrafter::~ModelDrafter() = default;

absl::Status ModelDrafter::Calibrate() {
  EngineOptions engine;
  engine.num_blocks = options_.num_blocks;
  engine.block_size = options_.block_size;
  engine.max_batch_tokens = options_.max_rows;
  return engine::Calibrate(engine, *executor_, clock_, cost_);
}

// How much of what is in the cache is still the sequence's. Its last token is always computed anew:
// what it draws is what we come for.
void ModelDrafter::Settle(const Sequence& s, Place& place) const {
  const TokenRange tokens = TokensOf(s);
  const int most = std::min<int>(static_cast<int>(place.tokens.size()), tokens.size() - 1);
  while (place.num_settled < most &&
         place.tokens[static_cast<size_t>(place.num_settled)] == tokens[place.num_settled]) {
    ++place.num_settled;
  }
  place.num_settled = std::min(place.num_settled, most);
  place.tokens.resize(static_cast<size_t>(place.num_settled));
}

// Blocks for so many tokens; those of whoever is longest out make room, but not of those that are
// asked for now.
bool ModelDrafter::TakeBlocks(Place& place, int tokens) {
  const auto need = static_cast<size_t>(BlocksFor(tokens, options_.block_size));
  if (need > static_cast<size_t>(options_.num_blocks)) return false;
  while (place.blocks.size() + free_.size() < need) {
    auto oldest = places_.end();
    for (auto it = places_.begin(); it != places_.end(); ++it) {
      if (it->second.turn == turn_ || it->second.blocks.empty()) continue;
      if (oldest == places_.end() || it->second.turn < oldest->second.turn) oldest = it;
    }
    if (oldest == places_.end()) return false;
    Forget(oldest->first);
  }
  while (place.blocks.size() < need) {
    place.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void ModelDrafter::Forget(model::SequenceId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  free_.insert(free_.end(), found->second.blocks.begin(), found->second.blocks.end());
  places_.erase(found);
}

int ModelDrafter::RowsFor(const Sequence& s, const Place& place) const {
  return NumTokens(s) - static_cast<int>(place.tokens.size());
}

void ModelDrafter::AddRows(const Work& work, std::span<const int32_t> tokens, bool draws) {
  const Place& place = *work.place;
  const auto begin = static_cast<int>(place.tokens.size());
  const int end = begin + static_cast<int>(tokens.size()), size = options_.block_size;
  for (int at = begin; at < end; ++at) {
    plan_.token_ids.push_back(tokens[static_cast<size_t>(at - begin)]);
    plan_.positions.push_back(at);
    plan_.kv_slots.push_back(place.blocks[static_cast<size_t>(at / size)] * size + at % size);
  }
  plan_.sequence_ids.push_back(work.sequence->id);
  plan_.query_begin.push_back(plan_.num_rows());
  plan_.kv_len.push_back(end);
  plan_.block_tables.insert(plan_.block_tables.end(), place.blocks.begin(),
                            place.blocks.begin() + BlocksFor(end, size));
  plan_.block_tables.resize(plan_.sequence_ids.size() * static_cast<size_t>(plan_.max_blocks),
                            kNoBlock);
  if (draws) {
    const Request& r = work.sequence->request->request;
    plan_.sample_rows.push_back(plan_.num_rows() - 1);
    plan_.sample_targets.push_back(-1);
    model::SamplingParams& sampling = plan_.sampling.emplace_back(r.sampling);
    sampling.sequence_index = work.sequence->index;
    sampling.num_logprobs = -1;
    for (const kernels::LogitBias& bias : r.biases) {
      if (bias.token_id < options_.vocab_size) plan_.biases.push_back(bias);
    }
    if (model::HasPenalty(r.sampling) && work.sequence->seen_is_built) {
      seen_ = work.sequence->seen;
      for (const int32_t draft : place.drafts) model::AddSeen(seen_, draft);
      for (const kernels::SeenToken& seen : seen_) {
        if (seen.token_id < options_.vocab_size) plan_.seen.push_back(seen);
      }
    }
    plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
    plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
  }
  plan_.sample_begin.push_back(plan_.num_samples());
}

// Whether the plan ran; its tokens are in result_.
bool ModelDrafter::RunStep(const StepLoad& load) {
  const absl::Duration begin = clock_.Elapsed();
  auto result = executor_->Run(plan_, [](std::span<uint32_t>) {});
  lost_ = !result.ok();
  if (lost_ && options_.on_lost) options_.on_lost(result.status());
  if (lost_) return false;
  cost_.Observe(load, clock_.Elapsed() - begin);
  result_ = *std::move(result);
  return true;
}

void ModelDrafter::Prepare(std::span<const DraftAsk> asks) {
  ++turn_;
  works_.clear();
  if (lost_) return;
  // First all of them, since a new place moves the others.
  for (const DraftAsk& ask : asks) places_[ask.sequence->id].turn = turn_;
  StepLoad load;
  plan_.Clear();
  for (const DraftAsk& ask : asks) {
    const Sequence& s = *ask.sequence;
    Place& place = places_[s.id];
    place.drafts.clear();
    Settle(s, place);
    const int begin = static_cast<int>(place.tokens.size()), all = RowsFor(s, place);
    const int most = std::min(ask.most, options_.context_length - NumTokens(s));
    if (!place.readable || most <= 0) continue;
    // As many rows as the step can take, in halves.
    int rows = std::min<int>(all, options_.max_rows - static_cast<int>(load.rows));
    while (rows > kLeastRows &&
           cost_.Predict(load.WithRows(begin, rows, 1)) > options_.longest_step) {
      rows = std::max(kLeastRows, rows / 2);
    }
    if (rows <= 0 || !TakeBlocks(place, begin + rows + most - 1)) continue;
    const bool drafts = rows == all;
    load = load.WithRows(begin, rows, drafts ? 1 : 0);
    plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(begin + rows, options_.block_size));
    works_.push_back({&s, &place, most, rows, drafts});
  }

  std::erase_if(works_, [&](const Work& work) {
    const TokenRange tokens = TokensOf(*work.sequence);
    const auto begin = static_cast<int>(work.place->tokens.size());
    tokens_.clear();
    for (int at = begin; at < begin + work.rows; ++at) {
      work.place->readable &= tokens[at] < options_.vocab_size;
      tokens_.push_back(tokens[at]);
    }
    if (!work.place->readable) return true;
    AddRows(work, tokens_, work.drafts);
    return false;
  });
  if (works_.empty() || !RunStep(load)) return;

  size_t sample = 0;
  for (const Work& work : works_) {
    const TokenRange tokens = TokensOf(*work.sequence);
    Place& place = *work.place;
    for (int i = 0; i < work.rows; ++i) {
      place.tokens.push_back(tokens[static_cast<int>(place.tokens.size())]);
    }
    place.num_settled = std::min(static_cast<int>(place.tokens.size()), NumTokens(*work.sequence));
    if (work.drafts) place.drafts.push_back(result_.token_ids[sample++]);
  }
  for (;;) {
    std::erase_if(works_, [&](const Work& work) {
      const Place& place = *work.place;
      return !work.drafts || static_cast<int>(place.drafts.size()) >= work.most ||
             place.drafts.back() >= options_.target_vocab_size;
    });
    if (works_.empty()) return;
    plan_.Clear();
    load = {};
    for (const Work& work : works_) {
      const auto tokens = static_cast<int>(work.place->tokens.size());
      plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(tokens + 1, options_.block_size));
      load = load.WithRows(tokens, 1, 1);
    }
    for (const Work& work : works_) AddRows(work, std::span(work.place->drafts).last(1), true);
    if (!RunStep(load)) return;
    for (size_t i = 0; i < works_.size(); ++i) {
      Place& place = *works_[i].place;
      place.tokens.push_back(place.drafts.back());
      place.drafts.push_back(result_.token_ids[i]);
    }
  }
}

void ModelDrafter::Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) {
  drafts.clear();
  const auto place = places_.find(s.id);
  if (place == places_.end() || place->second.turn != turn_) return;
  for (const int32_t draft : place->second.drafts) {
    if (static_cast<int>(drafts.size()) == most || draft >= options_.target_vocab_size) return;
    drafts.push_back(draft);
  }
}

DraftCost ModelDrafter::Cost(const Sequence& s, int num_sequences) const {
  const auto found = places_.find(s.id);
  const int read = found == places_.end() ? 0 : found->second.num_settled;
  const int rows = std::max(1, num_sequences);
  const int64_t context = NumTokens(s);
  const StepLoad step = {rows, rows * context, rows};
  DraftCost cost;
  cost.each = cost_.Predict(step) / rows;
  // The rows beyond the one that draws.
  const int missing = std::max(0, static_cast<int>(context) - read - 1);
  cost.first = cost_.Predict(step.WithRows(read, missing, 0)) - cost_.Predict(step);
  return cost;
}

}  // namespace continuo::engine

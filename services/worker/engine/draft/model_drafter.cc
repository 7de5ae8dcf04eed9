// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/model_drafter.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/worker/engine/draft/draft_plan.h"
#include "services/worker/engine/estimate/calibration.h"
#include "services/worker/engine/types/options.h"

namespace continuo::engine {
namespace {

// A prompt gets at least this many tokens of a step, however long they take.
constexpr int kMinChunk = 16;

}  // namespace

ModelDrafter::ModelDrafter(const ModelDrafterOptions& options,
                           std::unique_ptr<model::Executor> executor, const Clock* clock)
    : options_(options), executor_(std::move(executor)), clock_(*clock) {
  CONTINUO_CHECK(options.num_blocks >= 1 && options.block_size >= 1 &&
                 options.max_batch_tokens >= 1);
  for (BlockId block = options.num_blocks; block-- > 0;) free_.push_back(block);
}

ModelDrafter::~ModelDrafter() = default;

absl::Status ModelDrafter::Calibrate() {
  EngineOptions limits;
  limits.num_blocks = options_.num_blocks;
  limits.block_size = options_.block_size;
  limits.max_batch_tokens = options_.max_batch_tokens;
  return engine::Calibrate(limits, *executor_, clock_, cost_);
}

// Drops the cached tokens that are not those of the sequence. The last token of the sequence is
// always computed again, since the sample after it is needed.
void ModelDrafter::Confirm(const Sequence& s, Place& place) const {
  const TokenRange tokens = TokensOf(s);
  const int most = std::min<int>(static_cast<int>(place.tokens.size()), tokens.size() - 1);
  while (place.num_confirmed < most &&
         place.tokens[static_cast<size_t>(place.num_confirmed)] == tokens[place.num_confirmed]) {
    ++place.num_confirmed;
  }
  place.num_confirmed = std::min(place.num_confirmed, most);
  place.tokens.resize(static_cast<size_t>(place.num_confirmed));
}

// Gives `place` blocks for `num_tokens` tokens in all. The sequences that were not asked for
// longest make room, but none of this Prepare. Returns whether that was enough.
bool ModelDrafter::TakeBlocks(Place& place, int num_tokens) {
  const auto need = static_cast<size_t>(BlocksFor(num_tokens, options_.block_size));
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

int ModelDrafter::NumMissing(const Sequence& s, const Place& place) const {
  return NumTokens(s) - static_cast<int>(place.tokens.size());
}

void ModelDrafter::AddTokens(const Work& work, std::span<const int32_t> tokens, bool samples) {
  const Place& place = *work.place;
  const auto begin = static_cast<int>(place.tokens.size());
  plan_.token_ids.insert(plan_.token_ids.end(), tokens.begin(), tokens.end());
  AddPlaces(work.sequence->id, place.blocks, options_.block_size, begin,
            begin + static_cast<int>(tokens.size()), plan_);
  if (samples) AddDraftSample(*work.sequence, place.drafts, options_.vocab_size, seen_, plan_);
  plan_.sample_begin.push_back(plan_.num_samples());
}

// Runs plan_ into result_. Returns false, now and from then on, if the executor is lost.
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
  Prefill(asks);
  Decode();
}

// Computes what the cache lacks of the sequences, in one step, and samples the first draft of those
// that then lack nothing. Leaves in works_ the sequences that took part.
void ModelDrafter::Prefill(std::span<const DraftAsk> asks) {
  // All places come first, since inserting one may move the others.
  for (const DraftAsk& ask : asks) places_[ask.sequence->id].turn = turn_;
  StepLoad load;
  plan_.Clear();
  for (const DraftAsk& ask : asks) {
    const Sequence& s = *ask.sequence;
    Place& place = places_[s.id];
    place.drafts.clear();
    Confirm(s, place);
    const int begin = static_cast<int>(place.tokens.size()), missing = NumMissing(s, place);
    const int most = std::min(ask.most, options_.context_length - NumTokens(s));
    if (!place.readable || most <= 0) continue;
    // Takes as many tokens as the step has time for, halving until they fit.
    int count = std::min<int>(missing, options_.max_batch_tokens - static_cast<int>(load.tokens));
    while (count > kMinChunk &&
           cost_.Predict(load.WithTokens(begin, count, 1)) > options_.longest_step) {
      count = std::max(kMinChunk, count / 2);
    }
    if (count <= 0 || !TakeBlocks(place, begin + count + most - 1)) continue;
    const bool drafts = count == missing;
    load = load.WithTokens(begin, count, drafts ? 1 : 0);
    plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(begin + count, options_.block_size));
    works_.push_back({&s, &place, most, count, drafts});
  }

  std::erase_if(works_, [&](const Work& work) {
    const TokenRange tokens = TokensOf(*work.sequence);
    const auto begin = static_cast<int>(work.place->tokens.size());
    tokens_.clear();
    for (int at = begin; at < begin + work.num_tokens; ++at) {
      work.place->readable &= tokens[at] < options_.vocab_size;
      tokens_.push_back(tokens[at]);
    }
    if (!work.place->readable) return true;
    AddTokens(work, tokens_, work.drafts);
    return false;
  });
  if (works_.empty()) return;
  if (!RunStep(load)) return works_.clear();

  size_t sample = 0;
  for (const Work& work : works_) {
    const TokenRange tokens = TokensOf(*work.sequence);
    Place& place = *work.place;
    for (int i = 0; i < work.num_tokens; ++i) {
      place.tokens.push_back(tokens[static_cast<int>(place.tokens.size())]);
    }
    place.num_confirmed =
        std::min(static_cast<int>(place.tokens.size()), NumTokens(*work.sequence));
    if (work.drafts) place.drafts.push_back(result_.token_ids[sample++]);
  }
}

// Samples one more draft of every sequence in each step, until all have as many as were asked for.
void ModelDrafter::Decode() {
  for (;;) {
    std::erase_if(works_, [&](const Work& work) {
      const Place& place = *work.place;
      return !work.drafts || static_cast<int>(place.drafts.size()) >= work.most ||
             place.drafts.back() >= options_.target_vocab_size;
    });
    if (works_.empty()) return;
    plan_.Clear();
    StepLoad load;
    for (const Work& work : works_) {
      const auto tokens = static_cast<int>(work.place->tokens.size());
      plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(tokens + 1, options_.block_size));
      load = load.WithTokens(tokens, 1, 1);
    }
    for (const Work& work : works_) AddTokens(work, std::span(work.place->drafts).last(1), true);
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
  const int cached = found == places_.end() ? 0 : found->second.num_confirmed;
  const int count = std::max(1, num_sequences);
  const int64_t context = NumTokens(s);
  const StepLoad step = {count, count * context, count};
  DraftCost cost;
  cost.one = cost.each = cost_.Predict(step) / count;
  // Tokens to compute before the one that is sampled from.
  const int missing = std::max(0, static_cast<int>(context) - cached - 1);
  cost.once = cost_.Predict(step.WithTokens(cached, missing, 0)) - cost_.Predict(step);
  return cost;
}

}  // namespace continuo::engine

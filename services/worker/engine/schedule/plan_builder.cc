// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/plan_builder.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {
namespace {

// Returns whether stop ids are barred from the sample after `num_drafts` more tokens.
bool BarsStops(const Sequence& s, size_t num_drafts) {
  const Request& r = s.request->request;
  return !r.stop_ids.empty() && NumAnswered(s) + static_cast<int64_t>(num_drafts) < r.min_tokens;
}

bool IsMasked(const Request& r, bool bars_stops) {
  return !r.allowed_mask.empty() || !r.barred.empty() || bars_stops;
}

bool IsAny(std::span<const uint32_t> mask) {
  return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

void SetAll(std::span<uint32_t> mask, int vocab_size) {
  std::ranges::fill(mask, ~uint32_t{0});
  if (vocab_size % 32 != 0) mask.back() = (uint32_t{1} << (vocab_size % 32)) - 1;
}

void Bar(std::span<uint32_t> mask, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  if (id >= 0 && word < mask.size()) mask[word] &= ~(uint32_t{1} << (id % 32));
}

void Allow(std::span<uint32_t> mask, int vocab_size, int32_t id) {
  if (id >= 0 && id < vocab_size) mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

// Leaves in `mask` the ids that the sample may take but for barred sequences.
void FillAllowed(const PlannedSample& sample, int vocab_size, std::span<uint32_t> mask) {
  const Request& r = sample.sequence->request->request;
  SetAll(mask, vocab_size);
  if (!r.allowed_mask.empty()) {
    for (size_t i = 0; i < mask.size(); ++i) {
      mask[i] &= i < r.allowed_mask.size() ? r.allowed_mask[i] : 0;
    }
  }
  if (!sample.bars_stops) return;
  for (const int32_t id : r.stop_ids) Bar(mask, id);
}

// Returns whether the tokens of an answer end with `ids`; `drafts` are samples whose drafts follow
// the answer.
bool EndsWith(const std::vector<int32_t>& answer, std::span<const PlannedSample> drafts,
              std::span<const int32_t> ids) {
  if (ids.size() > answer.size() + drafts.size()) return false;
  for (size_t i = 0; i < ids.size(); ++i) {  // from the end
    const int32_t token = i < drafts.size() ? drafts[drafts.size() - 1 - i].draft
                                            : answer[answer.size() - 1 - (i - drafts.size())];
    if (token != ids[ids.size() - 1 - i]) return false;
  }
  return true;
}

// The last token of the prompt gives the first sample of every sequence that has none yet.
bool SamplesFirst(const Sequence& s) {
  return s.state != SequenceState::kFinished && NumAnswered(s) == 0 &&
         s.request->request.max_tokens > 0;
}

// Number of biases, and of seen tokens, for which memory is always kept.
constexpr size_t kKeptEntries = 4096;

// Frees the memory that an unusual step took, if this one needed little of it.
template <typename T>
void Trim(std::vector<T>& values) {
  if (values.capacity() <= kKeptEntries || values.size() >= values.capacity() / 4) return;
  values = std::vector<T>();
  values.reserve(kKeptEntries);
}

}  // namespace

int NumSamples(const Sequence& s, int begin, int num_tokens) {
  const LiveRequest& r = *s.request;
  const int last = r.prompt_tokens() - 1, end = begin + num_tokens;
  int count = 0;
  if (r.request.num_prompt_logprobs >= 0) {
    count += std::max(0, std::min(end, last) - std::max(begin, r.num_scored));
  }
  if (begin <= last && last < end) {
    count += static_cast<int>(std::ranges::count_if(r.sequences, SamplesFirst));
    if (r.request.reads_state && r.request.pooling == Pooling::kLast) ++count;
  }
  if (r.request.reads_state && r.request.pooling == Pooling::kFirst && begin == 0) ++count;
  if (r.request.reads_state && r.request.pooling == Pooling::kMean) count += num_tokens;
  if (end == NumTokens(s) && NumAnswered(s) > 0) ++count;
  return count;
}

PlanBuilder::PlanBuilder(int block_size, int max_tokens) : block_size_(block_size) {
  const auto count = static_cast<size_t>(max_tokens);
  for (auto* array : {&plan_.token_ids, &plan_.positions, &plan_.kv_slots, &plan_.sample_rows,
                      &plan_.sample_targets, &plan_.state_to}) {
    array->reserve(count);
  }
  plan_.bias_begin.reserve(count + 1);
  plan_.seen_begin.reserve(count + 1);
  plan_.sampling.reserve(count);
  plan_.biases.reserve(kKeptEntries);
  plan_.seen.reserve(kKeptEntries);
  samples_.reserve(count);
}

void PlanBuilder::Clear() {
  Trim(plan_.biases);
  Trim(plan_.seen);
  plan_.Clear();
  samples_.clear();
}

void PlanBuilder::Add(Sequence& s, int num_tokens, std::span<const int32_t> drafts) {
  LiveRequest& r = *s.request;
  const auto num_drafts = static_cast<int>(drafts.size());
  const int begin = s.num_computed, end = begin + num_tokens;
  const int num_blocks = BlocksFor(end + num_drafts, block_size_);
  CONTINUO_CHECK(num_tokens > 0 && end <= NumTokens(s));
  CONTINUO_CHECK(drafts.empty() ||
                 (end == NumTokens(s) && !s.answer.empty() && s.num_in_flight == 0));
  CONTINUO_CHECK(num_blocks <= static_cast<int>(s.blocks.size()));
  CONTINUO_CHECK(num_blocks <= plan_.max_blocks);

  const TokenRange tokens = TokensOf(s);
  for (int at = begin; at < end + num_drafts; ++at) {
    if (at < tokens.size() && at < end) {
      plan_.token_ids.push_back(tokens[at]);
    } else {
      plan_.token_ids.push_back(at < end ? model::SampledBy(s.in_flight_sample) : drafts[at - end]);
    }
    plan_.positions.push_back(at);
    plan_.kv_slots.push_back(s.blocks[at / block_size_] * block_size_ + at % block_size_);
  }
  if (const std::vector<int32_t>& types = r.request.token_types;
      !types.empty() || !plan_.token_types.empty()) {
    CONTINUO_CHECK(types.empty() || (begin == 0 && end == static_cast<int>(types.size())));
    plan_.token_types.resize(plan_.token_ids.size() - static_cast<size_t>(num_tokens + num_drafts));
    plan_.token_types.insert(plan_.token_types.end(), types.begin(), types.end());
    plan_.token_types.resize(plan_.token_ids.size());
  }
  if (!s.states.empty()) AddStates(s, begin, end + num_drafts);
  if (r.request.adapter != model::kNoAdapter || !plan_.adapters.empty()) {
    plan_.adapters.resize(plan_.sequence_ids.size(), model::kNoAdapter);
    plan_.adapters.push_back(r.request.adapter);
  }
  plan_.sequence_ids.push_back(s.id);
  plan_.query_begin.push_back(plan_.num_rows());
  plan_.kv_len.push_back(end + num_drafts);
  plan_.block_tables.insert(plan_.block_tables.end(), s.blocks.begin(),
                            s.blocks.begin() + num_blocks);
  plan_.block_tables.resize(plan_.sequence_ids.size() * plan_.max_blocks, kNoBlock);

  const int first_row = plan_.num_rows() - num_tokens - num_drafts;
  const int last = r.prompt_tokens() - 1;
  if (r.request.num_prompt_logprobs >= 0) {
    for (int at = std::max(begin, r.num_scored); at < std::min(end, last); ++at) {
      AddScored(s, first_row + at - begin, at);
    }
  }
  if (begin <= last && last < end) {
    for (Sequence& sibling : r.sequences) {
      if (SamplesFirst(sibling)) AddSample(sibling, first_row + last - begin);
    }
    if (r.request.reads_state && r.request.pooling == Pooling::kLast) {
      AddStateRead(s, first_row + last - begin);
    }
  }
  if (r.request.reads_state && r.request.pooling != Pooling::kLast) {
    CONTINUO_CHECK(begin == 0 && end == r.prompt_tokens());
    const int num_states = r.request.pooling == Pooling::kFirst ? 1 : num_tokens;
    for (int i = 0; i < num_states; ++i) AddStateRead(s, first_row + i);
  }
  if (end == NumTokens(s) && NumAnswered(s) > 0) AddSample(s, first_row + num_tokens - 1);
  for (int i = 0; i < num_drafts; ++i) {
    AddSample(s, first_row + num_tokens + i, drafts.first(i + 1));
    samples_.back().draft = drafts[i];
    samples_.back().position = end + i;
  }
  plan_.sample_begin.push_back(plan_.num_samples());
}

void PlanBuilder::AddStates(const Sequence& s, int begin, int end) {
  auto state = s.states.begin();
  const auto take = [&](int position) {
    if (state == s.states.end() || state->position != position) return kNoState;
    return (state++)->slot;
  };
  plan_.state_from.push_back(take(begin));
  for (int at = begin; at < end; ++at) plan_.state_to.push_back(take(at + 1));
  CONTINUO_CHECK(state == s.states.end());
}

void PlanBuilder::AddScored(Sequence& s, int32_t row, int position) {
  const Request& r = s.request->request;
  plan_.sample_rows.push_back(row);
  plan_.sample_targets.push_back(r.prompt[position + 1]);
  AddUnsampled({.sequence = &s, .scores_prompt = true, .epoch = s.epoch},
               {.num_logprobs = r.num_prompt_logprobs});
}

void PlanBuilder::AddStateRead(Sequence& s, int32_t row) {
  plan_.sample_rows.push_back(row);
  plan_.sample_targets.push_back(model::kReadState);
  AddUnsampled({.sequence = &s, .reads_state = true, .epoch = s.epoch}, {});
}

void PlanBuilder::AddUnsampled(PlannedSample sample, const model::SamplingParams& sampling) {
  plan_.sampling.push_back(sampling);
  plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
  plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
  samples_.push_back(std::move(sample));
}

void PlanBuilder::AddSample(Sequence& s, int32_t row, std::span<const int32_t> drafts) {
  const Request& r = s.request->request;
  plan_.sample_rows.push_back(row);
  plan_.sample_targets.push_back(model::kSampleToken);
  model::SamplingParams& sampling = plan_.sampling.emplace_back(r.sampling);
  sampling.sequence_index = s.index;
  const bool bars_stops = BarsStops(s, drafts.size());
  // The constraint walks through the drafts in FillMask, while the device computes.
  const bool is_constrained =
      s.constraint != nullptr && (!drafts.empty() || s.constraint->Restricts());
  sampling.masked = is_constrained || IsMasked(r, bars_stops);
  plan_.biases.insert(plan_.biases.end(), r.biases.begin(), r.biases.end());
  plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
  if (model::HasPenalty(r.sampling)) {
    BuildSeen(s);  // the device itself adds a token in flight
    const std::vector<kernels::SeenToken>* seen = &s.seen;
    if (!drafts.empty()) {
      seen_ = s.seen;
      for (const int32_t draft : drafts) model::AddSeen(seen_, draft);
      seen = &seen_;
    }
    plan_.seen.insert(plan_.seen.end(), seen->begin(), seen->end());
  }
  plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
  samples_.push_back({.sequence = &s,
                      .bars_stops = bars_stops,
                      .is_constrained = is_constrained,
                      .epoch = s.epoch});
}

void PlanBuilder::FillUnconstrained(size_t k, int vocab_size, std::span<uint32_t> mask) const {
  const PlannedSample& sample = samples_[k];
  FillAllowed(sample, vocab_size, mask);
  const Sequence& s = *sample.sequence;
  if (s.request->request.barred.empty()) return;
  size_t first = k + 1;  // of the drafts before this sample
  while (samples_[first - 1].draft >= 0) --first;
  const std::span<const PlannedSample> drafts = std::span(samples_).subspan(first, k + 1 - first);
  // A token that only the device knows is no matter: steps do not overlap where it would be.
  for (const std::vector<int32_t>& ids : s.request->request.barred) {
    if (EndsWith(s.answer, drafts, std::span(ids).first(ids.size() - 1))) Bar(mask, ids.back());
  }
  if (!IsAny(mask)) FillAllowed(sample, vocab_size, mask);
}

void PlanBuilder::FillConstrained(size_t k, int vocab_size, std::span<uint32_t> mask) {
  PlannedSample& sample = samples_[k];
  const Request& r = sample.sequence->request->request;
  TokenConstraint& constraint = *sample.sequence->constraint;
  SetAll(mask, vocab_size);
  constraint.FillMask(mask);
  for (const int32_t id : r.stop_ids) Bar(mask, id);
  const bool any_goes_on = IsAny(mask);
  const bool can_end = !r.stop_ids.empty() && constraint.CanEnd();
  sample.failure = constraint.status();
  if (sample.failure.ok() && !any_goes_on && !can_end) {
    sample.failure = absl::InvalidArgumentError(
        "the constraint leaves no token that can follow and is not a stop token");
  }
  if (!sample.failure.ok()) return SetAll(mask, vocab_size);  // a sampler needs something
  // Before min_tokens an end comes only where nothing else can.
  if (can_end && !(sample.bars_stops && any_goes_on)) {
    for (const int32_t id : r.stop_ids) Allow(mask, vocab_size, id);
  }
  if (!IsMasked(r, sample.bars_stops)) return;
  rest_.resize(mask.size());
  FillUnconstrained(k, vocab_size, rest_);
  for (size_t i = 0; i < mask.size(); ++i) rest_[i] &= mask[i];
  if (IsAny(rest_)) std::ranges::copy(rest_, mask.begin());
}

void PlanBuilder::FillMask(std::span<uint32_t> mask, int vocab_size) {
  const auto words = static_cast<size_t>(model::MaskWords(vocab_size));
  int num_accepted = 0;  // drafts before this sample
  for (size_t k = 0; k < samples_.size(); ++k) {
    TokenConstraint* const constraint = samples_[k].sequence->constraint;
    if (constraint != nullptr && samples_[k].draft >= 0) {
      samples_[k].failure = samples_[k - 1].failure;
      if (samples_[k].failure.ok() && !constraint->Accept(samples_[k].draft)) {
        samples_[k].failure = absl::InternalError("the constraint refuses a draft that it took");
      }
      if (samples_[k].failure.ok()) ++num_accepted;
    }
    if (plan_.sampling[k].masked) {
      CONTINUO_CHECK(words <= mask.size());
      if (!samples_[k].failure.ok()) {
        SetAll(mask.first(words), vocab_size);
      } else if (samples_[k].is_constrained && constraint->Restricts()) {
        FillConstrained(k, vocab_size, mask.first(words));
      } else {
        FillUnconstrained(k, vocab_size, mask.first(words));
      }
      mask = mask.subspan(words);
    }
    const bool is_last = k + 1 == samples_.size() || samples_[k + 1].draft < 0;
    if (constraint != nullptr && samples_[k].draft >= 0 && is_last) {
      constraint->Rollback(std::exchange(num_accepted, 0));
    }
  }
}

}  // namespace continuo::engine

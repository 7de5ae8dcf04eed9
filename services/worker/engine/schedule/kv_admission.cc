// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/kv_admission.h"

#include <algorithm>
#include <functional>

namespace continuo::engine {
namespace {

// 1 / kMargin of the pool is left free, because expectations may be wrong. Measured with
// tests/bench/engine/admission_bench: without the margin up to a quarter of all requests was
// preempted, with it mostly none, at the same use of the pool.
constexpr int64_t kMargin = 16;

// The quantile of the known lengths at which a sequence is expected to end: multiples of the golden
// ratio spread evenly over [0, 1) for any number of sequences, and need no random numbers.
double Quantile(const Sequence& s) {
  return static_cast<double>((s.id * 0x9e3779b97f4a7c15u) >> 11) /
         static_cast<double>(uint64_t{1} << 53);
}

}  // namespace

int64_t PeakTokens(int64_t shared, std::vector<Footprint>& footprints) {
  std::ranges::sort(footprints, std::greater<>(), &Footprint::remaining);
  int64_t held = shared, count = 0, peak = shared;
  for (const Footprint& f : footprints) {
    held += f.tokens;
    ++count;
    peak = std::max(peak, held + count * f.remaining);
  }
  return peak;
}

void KvAdmission::AddFootprint(const Sequence& s, int64_t shared_blocks, bool worst) {
  const Request& request = s.request->request;
  const auto have = int64_t{NumAnswered(s)};
  const int64_t remaining =
      worst ? request.max_tokens - have : lengths_.Remaining(have, request.max_tokens, Quantile(s));
  // The footprint is in whole blocks, and exact at the end of the sequence.
  const int64_t at_end = NumTokens(s) + std::max<int64_t>(remaining - 1, 0);
  const int64_t blocks = BlocksFor(at_end, block_size_) - shared_blocks;
  footprints_.push_back({blocks * block_size_ - remaining, remaining});
}

void KvAdmission::AddFootprints(const Sequence& s, int64_t shared_blocks, bool worst) {
  AddFootprint(s, shared_blocks, worst);
  if (s.request->prefill_leader != &s) return;
  const int prompt_blocks = s.request->prompt_tokens() / block_size_;
  for (const Sequence& sibling : s.request->sequences) {
    if (sibling.state == SequenceState::kPending) AddFootprint(sibling, prompt_blocks, worst);
  }
}

int64_t KvAdmission::ReservedBlocks(const Sequence& s) const {
  const Request& request = s.request->request;
  const int64_t answer = lengths_.Bound(int64_t{NumAnswered(s)}, request.max_tokens);
  return BlocksFor(s.request->prompt_tokens() + std::max<int64_t>(answer - 1, 0), block_size_);
}

bool KvAdmission::Fits(const Sequence& s, std::span<Sequence* const> running, int num_used,
                       absl::FunctionRef<bool(const Sequence&)> stays) {
  // Guaranteed sequences may reserve the whole pool together: others are preempted for them.
  if (s.guaranteed) {
    int64_t reserved = ReservedBlocks(s);
    for (const Sequence* t : running) {
      if (t->guaranteed && stays(*t)) reserved += ReservedBlocks(*t);
    }
    if (reserved > num_blocks_) return false;
  }
  int64_t shared_blocks = num_used;
  for (const Sequence* t : running) {
    shared_blocks -= static_cast<int64_t>(t->blocks.size()) - t->num_shared;
  }
  const int64_t shared = std::max<int64_t>(0, shared_blocks) * block_size_;
  const int64_t pool = static_cast<int64_t>(num_blocks_) * block_size_;
  const auto peak = [&](bool worst) {
    footprints_.clear();
    for (const Sequence* t : running) {
      if (stays(*t)) AddFootprints(*t, t->num_shared, worst);
    }
    AddFootprints(s, static_cast<int64_t>(s.blocks.size()), worst);
    return PeakTokens(shared, footprints_);
  };
  const int64_t expected = peak(/*worst=*/false);
  if (expected <= pool - pool / kMargin) return true;
  // No margin is needed if everything fits even with the longest answers.
  return expected <= pool && peak(/*worst=*/true) <= pool;
}

}  // namespace continuo::engine

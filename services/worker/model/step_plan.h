// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sampling.h"

namespace continuo::model {

// Names one sequence (one of a request's num_sequences) while it lives. Unique in the process.
using SequenceId = uint64_t;

// In StepPlan::token_ids: refers to the token that sample `sample` of the previous step gives,
// which the host does not know yet.
constexpr int32_t SampledBy(int sample) { return -1 - sample; }

// In StepPlan::sample_targets: a token is sampled.
inline constexpr int32_t kSampleToken = -1;
// In StepPlan::sample_targets: no token is sampled or scored; the row's final hidden state is the
// result (StepResult::states).
inline constexpr int32_t kReadState = -2;

// In StepPlan::adapters: the sequence is computed by the model alone.
inline constexpr int32_t kNoAdapter = -1;

// Says how one token is sampled from its row of logits. A sample depends on this, on the StepPlan's
// arrays for it, and on the logits alone (exactness: keyed-sampling).
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  int32_t sequence_index = 0;  // which of num_sequences
  int32_t num_logprobs = -1;   // -1: none; n ≥ 0: the chosen token's and the n most likely ones'
  bool masked = false;         // the mask filler is asked which tokens may be picked
};

inline bool HasPenalty(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

// Counts one more `token` of an answer; `seen` is ordered by id.
inline void AddSeen(std::vector<kernels::SeenToken>& seen, int32_t token) {
  auto it = std::ranges::lower_bound(seen, token, {}, &kernels::SeenToken::token_id);
  if (it == seen.end() || it->token_id != token) it = seen.insert(it, {.token_id = token});
  ++it->answer_count;
}

// A KV block that is copied before the step's rows run, because a sequence forks.
struct BlockCopy {
  int32_t from = 0, to = 0;
};

// Everything that one forward pass needs, as flat arrays: the rows to compute, the places of their
// keys and values, and the rows that are sampled. The scheduler builds it, every rank reads it,
// nobody changes it in between; it can be copied to another host.
//
// Prefill, decode, prompt scoring, embedding and speculative verification have one form: a sequence
// contributes some rows and some samples.
struct StepPlan {
  // Per row, all sequences back to back.
  std::vector<int32_t> token_ids;  // or SampledBy
  std::vector<int32_t> positions;
  std::vector<int32_t> kv_slots;  // block * block_size + offset, where the row's K and V go
  // The part of its text that a row counts to (EncoderConfig::num_token_types). Empty: 0 for all.
  std::vector<int32_t> token_types;

  // Per sequence. A sequence has at least one row.
  std::vector<SequenceId> sequence_ids;
  std::vector<int32_t> query_begin = {0};  // one extra entry: the end
  std::vector<int32_t> kv_len;             // tokens in the cache after this step's rows
  std::vector<int32_t> block_tables;       // [num_seqs, max_blocks], -1 padded
  int32_t max_blocks = 0;
  std::vector<int32_t> sample_begin = {0};  // one extra entry: the end
  // AdapterLease::id or kNoAdapter. Empty: no sequence has an adapter.
  std::vector<int32_t> adapters;

  // Per sample. Several samples may read one row (num_sequences > 1 at the prompt's last row).
  std::vector<int32_t> sample_rows;  // index of a row, ascending
  // kSampleToken, kReadState, or a token that is scored, where none is sampled (prompt
  // log-probabilities). Where one is kReadState, all of the plan are.
  std::vector<int32_t> sample_targets;
  std::vector<SamplingParams> sampling;
  std::vector<int32_t> bias_begin = {0};   // one extra entry
  std::vector<kernels::LogitBias> biases;  // per sample, ids ascending and distinct
  std::vector<int32_t> seen_begin = {0};   // one extra entry
  // Per sample with a penalty, ids ascending and distinct. A sample whose row is SampledBy counts
  // that token as one more of its answer.
  std::vector<kernels::SeenToken> seen;

  // Of a model with states, else empty. One slot names the same place in every layer with a state.
  // Within a step no slot of state_to is one of state_from of another sequence, and each is in
  // state_to at most once.
  std::vector<int32_t> state_from;  // [num_seqs]: holds the state before the first row; -1: zeros
  std::vector<int32_t> state_to;    // [rows]: receives the state behind the row; -1: none

  // [rows] in a step of the module for multi-token prediction (ModelConfig::reads_mtp), else empty.
  // Such a step follows the step whose hidden states it reads, without another in between, and is
  // not overlapped. Its row at position p takes the token of position p + 1 and the hidden state
  // behind position p, and a sample of it guesses the token of position p + 2. The state is that
  // of row hidden_rows[i] of the last step or, if that was of the module, too, of its i-th row that
  // was sampled. kv_slots and block tables are those of position p: the module's keys and values
  // lie in a layer of their own. It has no states and no block copies.
  std::vector<int32_t> hidden_rows;

  std::vector<BlockCopy> block_copies;

  // Makes the plan empty; keeps its memory.
  void Clear() {
    token_ids.clear();
    positions.clear();
    kv_slots.clear();
    token_types.clear();
    sequence_ids.clear();
    query_begin.assign(1, 0);
    kv_len.clear();
    block_tables.clear();
    max_blocks = 0;
    sample_begin.assign(1, 0);
    adapters.clear();
    sample_rows.clear();
    sample_targets.clear();
    sampling.clear();
    bias_begin.assign(1, 0);
    biases.clear();
    seen_begin.assign(1, 0);
    seen.clear();
    state_from.clear();
    state_to.clear();
    hidden_rows.clear();
    block_copies.clear();
  }
  bool is_mtp() const { return !hidden_rows.empty(); }
  int num_seqs() const { return static_cast<int>(sequence_ids.size()); }
  int num_rows() const { return static_cast<int>(token_ids.size()); }
  int num_samples() const { return static_cast<int>(sample_rows.size()); }
  bool reads_states() const { return !sample_targets.empty() && sample_targets[0] == kReadState; }
};

struct TokenAlternative {
  int32_t token_id = 0;
  float logprob = 0;
};

// Natural logarithms, before temperature, penalties, bias and masks (exactness: raw-logprobs).
struct TokenScore {
  float logprob = 0;                           // of the sampled or scored token
  std::vector<TokenAlternative> alternatives;  // num_logprobs of them, most likely first
};

// In the order of StepPlan::sample_rows.
struct StepResult {
  std::vector<int32_t> token_ids;  // sampled, or the target; 0 where a state is read
  std::vector<TokenScore> scores;  // default where num_logprobs is -1
  // Empty unless the plan reads states; then [hidden_size] of each sample, as f32: what the head
  // would read, the final norm applied.
  std::vector<std::vector<float>> states;
};

}  // namespace continuo::model

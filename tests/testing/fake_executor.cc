// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_executor.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "tests/testing/next_token_mask.h"

namespace continuo {
namespace {

constexpr uint64_t kFirstCell = 0x6a09e667f3bcc908;

uint64_t Mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccd;
  return h ^ (h >> 33);
}
uint64_t Mix(uint64_t h, float x) { return Mix(h, uint64_t{std::bit_cast<uint32_t>(x)}); }

uint64_t CellAfter(uint64_t before, int32_t token, int32_t adapter = model::kNoAdapter,
                   int32_t type = 0) {
  uint64_t cell = Mix(before, static_cast<uint64_t>(token) + 1);
  if (type != 0) cell = Mix(cell, static_cast<uint64_t>(type) << 32);
  return adapter == model::kNoAdapter ? cell : Mix(cell, ~static_cast<uint64_t>(adapter));
}

// The adapter of a sequence of the plan.
int32_t AdapterOf(const model::StepPlan& p, int i) {
  return p.adapters.empty() ? model::kNoAdapter : p.adapters[static_cast<size_t>(i)];
}

bool MayPick(std::span<const uint32_t> mask, int32_t id) {
  return mask.empty() || (mask[id / 32] >> (id % 32) & 1) != 0;
}

// `context` is the hash of every visible cell; `position` that of the sampled token.
int32_t Draw(uint64_t context, int position, const model::SamplingParams& p,
             std::span<const kernels::LogitBias> biases, std::span<const kernels::SeenToken> seen,
             std::span<const uint32_t> mask, int vocab_size) {
  uint64_t h = Mix(context, static_cast<uint64_t>(position));
  h = Mix(h, p.temperature);
  if (p.temperature > 0) h = Mix(Mix(h, p.seed), static_cast<uint64_t>(p.sequence_index));
  for (const kernels::LogitBias& bias : biases) {
    h = Mix(Mix(h, static_cast<uint64_t>(bias.token_id)), bias.bias);
  }
  const bool answer_counts = p.presence_penalty != 0 || p.frequency_penalty != 0;
  if (p.repetition_penalty != 1 || answer_counts) {
    for (const kernels::SeenToken& token : seen) {
      if (p.repetition_penalty == 1 && token.answer_count == 0) continue;
      h = Mix(Mix(h, static_cast<uint64_t>(token.token_id)),
              static_cast<uint64_t>(token.answer_count));
    }
  }
  const auto first = static_cast<int32_t>(h % static_cast<uint64_t>(vocab_size));
  for (int32_t i = 0; i < vocab_size; ++i) {
    const int32_t id = (first + i) % vocab_size;
    if (MayPick(mask, id)) return id;
  }
  return first;
}

model::TokenScore Score(uint64_t context, int32_t token, int num_logprobs, int vocab_size) {
  model::TokenScore score;
  const auto hash = [&](int x) { return Mix(context, static_cast<uint64_t>(x)); };
  const auto logprob = [&](int32_t id) { return -static_cast<float>(hash(id) % 4096) / 256; };
  score.logprob = logprob(token);
  for (int i = 0; i < num_logprobs; ++i) {
    const auto id = static_cast<int32_t>(hash(-1 - i) % static_cast<uint64_t>(vocab_size));
    score.alternatives.push_back({.token_id = id, .logprob = logprob(id)});
  }
  return score;
}

// The hash of every cell that the last of `tokens` sees. `types` are of each token, or none.
uint64_t ContextOf(std::span<const int32_t> tokens, int32_t adapter,
                   std::span<const int32_t> types = {}) {
  uint64_t cell = kFirstCell, context = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    cell = CellAfter(cell, tokens[i], adapter, types.empty() ? 0 : types[i]);
    context = Mix(context, cell);
  }
  return context;
}

std::vector<float> StateOf(uint64_t context) {
  std::vector<float> state;
  for (int i = 0; i < kFakeStateSize; ++i) {
    state.push_back(static_cast<float>(Mix(context, static_cast<uint64_t>(i)) % 65521) / 256);
  }
  return state;
}

absl::Status Malformed(const char* what, int64_t where) {
  return absl::InternalError(absl::StrCat("malformed plan: ", what, " at ", where));
}

bool IsOffsets(const std::vector<int32_t>& begin, int count, size_t total) {
  return static_cast<int>(begin.size()) == count + 1 && begin.front() == 0 &&
         begin.back() == static_cast<int32_t>(total) && std::ranges::is_sorted(begin);
}

}  // namespace

FakeExecutor::FakeExecutor(const FakeExecutorOptions& options)
    : options_(options),
      cells_(static_cast<size_t>(options.num_blocks) * options.block_size),
      states_(options.num_state_slots),
      written_in_(cells_.size()),
      read_in_(options.num_blocks),
      reader_(options.num_blocks),
      mtp_cells_(cells_.size()) {}

void FakeExecutor::FailWith(absl::Status status) {
  failure_ = std::move(status);
  fails_ = true;
}

absl::Status FakeExecutor::Check(const model::StepPlan& p) {
  const size_t rows = p.token_ids.size(), seqs = p.sequence_ids.size();
  const size_t samples = p.sample_rows.size();
  if (rows == 0) return Malformed("no rows", 0);
  if (p.positions.size() != rows || p.kv_slots.size() != rows) return Malformed("row arrays", 0);
  if (!p.token_types.empty() && p.token_types.size() != rows) return Malformed("token types", 0);
  if (p.kv_len.size() != seqs || p.block_tables.size() != seqs * p.max_blocks) {
    return Malformed("sequence arrays", 0);
  }
  if (p.sample_targets.size() != samples || p.sampling.size() != samples) {
    return Malformed("sample arrays", 0);
  }
  if (!IsOffsets(p.query_begin, p.num_seqs(), rows) ||
      !IsOffsets(p.sample_begin, p.num_seqs(), samples) ||
      !IsOffsets(p.bias_begin, p.num_samples(), p.biases.size()) ||
      !IsOffsets(p.seen_begin, p.num_samples(), p.seen.size())) {
    return Malformed("offsets", 0);
  }
  if (!p.adapters.empty() && (p.adapters.size() != seqs || p.is_mtp())) {
    return Malformed("adapters", 0);
  }
  if (!std::ranges::is_sorted(p.sample_rows)) return Malformed("sample rows", 0);
  std::vector<model::SequenceId> ids = p.sequence_ids;
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) return Malformed("a sequence twice", 0);
  for (int i = 0; i < p.num_seqs(); ++i) RETURN_IF_ERROR(CheckRows(p, i));
  RETURN_IF_ERROR(CheckStates(p));
  for (int k = 0; k < p.num_samples(); ++k) {
    const auto strictly = [](const auto& list, int begin, int end) {
      for (int j = begin + 1; j < end; ++j) {
        if (list[j - 1].token_id >= list[j].token_id) return false;
      }
      return true;
    };
    if (!strictly(p.biases, p.bias_begin[k], p.bias_begin[k + 1])) return Malformed("biases", k);
    if (!strictly(p.seen, p.seen_begin[k], p.seen_begin[k + 1])) return Malformed("seen", k);
    if (p.sample_targets[k] >= options_.vocab_size) return Malformed("sample target", k);
    if ((p.sample_targets[k] == model::kReadState) != p.reads_states()) {
      return Malformed("a state among samples", k);
    }
  }
  // The order of copies does not matter: nothing is written twice, or read after it was written.
  std::vector<int32_t> to;
  for (const model::BlockCopy& copy : p.block_copies) {
    if (copy.from < 0 || copy.from >= options_.num_blocks || copy.to < 0 ||
        copy.to >= options_.num_blocks) {
      return Malformed("copied block", copy.to);
    }
    to.push_back(copy.to);
  }
  std::ranges::sort(to);
  if (std::ranges::adjacent_find(to) != to.end()) return Malformed("a block copied to twice", 0);
  for (const model::BlockCopy& copy : p.block_copies) {
    if (std::ranges::binary_search(to, copy.from)) return Malformed("a chain of copies", copy.from);
  }
  return absl::OkStatus();
}

absl::Status FakeExecutor::CheckRows(const model::StepPlan& p, int i) {
  const int begin = p.query_begin[i], end = p.query_begin[i + 1];
  if (begin >= end) return Malformed("a sequence without rows", i);
  const int blocks = (p.kv_len[i] + options_.block_size - 1) / options_.block_size;
  if (blocks > p.max_blocks) return Malformed("kv_len", i);
  const auto table = std::span(p.block_tables).subspan(i * p.max_blocks, p.max_blocks);
  for (int b = 0; b < p.max_blocks; ++b) {
    if (b < blocks ? table[b] < 0 || table[b] >= options_.num_blocks : table[b] != -1) {
      return Malformed("block table", i);
    }
  }
  for (int r = begin; r < end; ++r) {
    const int position = p.positions[r];
    if (token_ids_[r] < 0 || token_ids_[r] >= options_.vocab_size) return Malformed("token", r);
    if (position != p.kv_len[i] - (end - r)) return Malformed("position", r);
    const int slot = p.kv_slots[r];
    if (slot != table[position / options_.block_size] * options_.block_size +
                    position % options_.block_size) {
      return Malformed("slot outside its block table", r);
    }
    if (written_in_[slot] == step_) return Malformed("a slot written twice", r);
    written_in_[slot] = step_;
  }
  for (int k = p.sample_begin[i]; k < p.sample_begin[i + 1]; ++k) {
    if (p.sample_rows[k] < begin || p.sample_rows[k] >= end) return Malformed("sample row", k);
  }
  // A cell that several sequences see must not be written by any of them.
  const int first_written = p.positions[begin] / options_.block_size;
  for (int b = 0; b < blocks; ++b) {
    const int block = table[b];
    const int32_t writes = b >= first_written ? 1 : 0;
    if (read_in_[block] == step_ && (writes != 0 || reader_[block] != 0)) {
      return Malformed("a shared block written", i);
    }
    read_in_[block] = step_;
    reader_[block] = writes;
  }
  return absl::OkStatus();
}

absl::Status FakeExecutor::CheckStates(const model::StepPlan& p) {
  if (states_.empty() || p.is_mtp()) {
    return p.state_from.empty() && p.state_to.empty() ? absl::OkStatus()
                                                      : Malformed("states of no layer", 0);
  }
  if (p.state_from.size() != p.sequence_ids.size() || p.state_to.size() != p.token_ids.size()) {
    return Malformed("state arrays", 0);
  }
  std::vector<int> writer(states_.size(), -1);
  const auto is_slot = [&](int32_t slot) {
    return slot >= -1 && slot < static_cast<int32_t>(states_.size());
  };
  for (int i = 0; i < p.num_seqs(); ++i) {
    for (int r = p.query_begin[i]; r < p.query_begin[i + 1]; ++r) {
      const int32_t slot = p.state_to[r];
      if (!is_slot(slot)) return Malformed("slot of a state", r);
      if (slot < 0) continue;
      if (writer[slot] >= 0) return Malformed("a state written twice", r);
      writer[slot] = i;
    }
  }
  for (int i = 0; i < p.num_seqs(); ++i) {
    const int32_t slot = p.state_from[i];
    if (!is_slot(slot)) return Malformed("slot of a state", i);
    if ((slot < 0) != (p.positions[p.query_begin[i]] == 0)) return Malformed("first state", i);
    if (slot >= 0 && writer[slot] >= 0 && writer[slot] != i) {
      return Malformed("a state that another sequence reads is written", i);
    }
  }
  return absl::OkStatus();
}

absl::Status FakeExecutor::RunStates(const model::StepPlan& p, int i) {
  if (states_.empty()) return absl::OkStatus();
  const int32_t from = p.state_from[i];
  uint64_t state = from < 0 ? kFirstCell : states_[from];
  for (int r = p.query_begin[i]; r < p.query_begin[i + 1]; ++r) {
    state = CellAfter(state, token_ids_[r], AdapterOf(p, i));
    if (state != cells_[p.kv_slots[r]]) return Malformed("the state of another prefix", r);
    if (p.state_to[r] >= 0) states_[p.state_to[r]] = state;
  }
  return absl::OkStatus();
}

absl::Status FakeExecutor::TakeTokens(const model::StepPlan& p) {
  token_ids_ = p.token_ids;
  for (int32_t& token : token_ids_) {
    if (token >= 0) continue;
    if (started_.empty()) return Malformed("a token of no step", token);
    const Started& before = started_.back();
    const auto sample = static_cast<size_t>(-1 - token);
    if (model::SampledBy(static_cast<int>(sample)) != token || sample >= before.is_left.size()) {
      return Malformed("a token of no sample", token);
    }
    token = before.is_left[sample] ? 0 : before.result.token_ids[sample];
  }
  return absl::OkStatus();
}

absl::StatusOr<model::StepResult> FakeExecutor::Finish() {
  if (fails_) return failure_;
  if (started_.empty()) return absl::InternalError("no step has begun");
  Started first = std::move(started_.front());
  started_.pop_front();
  for (size_t k = 0; k < first.is_left.size(); ++k) {
    if (first.is_overtaken && first.is_left[k]) first.result.token_ids[k] = -1;
  }
  return std::move(first.result);
}

absl::Status FakeExecutor::Start(const model::StepPlan& p, model::MaskFiller fill_mask) {
  if (fails_) return failure_;
  if (started_.size() >= (options_.is_asynchronous ? 2 : 1)) {
    return absl::InternalError("too many steps have begun");
  }
  ++step_;
  absl::Status checked = TakeTokens(p);
  if (checked.ok()) checked = Check(p);
  if (!checked.ok() && p.is_mtp()) FailWith(checked);
  RETURN_IF_ERROR(checked);
  if (p.is_mtp()) {
    // A drafter may go on without its module; the next step tells.
    absl::Status status = RunMtp(p);
    if (!status.ok()) FailWith(status);
    return status;
  }
  hidden_.clear();
  hidden_is_guessed_ = false;
  const int size = options_.block_size;
  const int words = model::MaskWords(options_.vocab_size);
  const auto num_masked = std::ranges::count_if(p.sampling, &model::SamplingParams::masked);
  mask_.assign(static_cast<size_t>(num_masked) * words, ~uint32_t{0});
  if (num_masked > 0) fill_mask(std::span(mask_));

  for (const model::BlockCopy& copy : p.block_copies) {
    std::copy_n(cells_.begin() + copy.from * size, size, cells_.begin() + copy.to * size);
  }
  Started started;
  model::StepResult& result = started.result;
  std::span<const uint32_t> masks = mask_;
  for (int i = 0; i < p.num_seqs(); ++i) {
    const auto table = std::span(p.block_tables).subspan(i * p.max_blocks, p.max_blocks);
    const auto cell = [&](int position) {
      return cells_[table[position / size] * size + position % size];
    };
    for (int r = p.query_begin[i]; r < p.query_begin[i + 1]; ++r) {
      const int position = p.positions[r];
      cells_[p.kv_slots[r]] =
          CellAfter(position == 0 ? kFirstCell : cell(position - 1), token_ids_[r], AdapterOf(p, i),
                    p.token_types.empty() ? 0 : p.token_types[r]);
    }
    RETURN_IF_ERROR(RunStates(p, i));
    if (options_.has_mtp) {
      uint64_t seen = 0;
      for (int at = 0; at < p.kv_len[i]; ++at) {
        seen = Mix(seen, cell(at));
        if (at >= p.positions[p.query_begin[i]]) hidden_.push_back({cell(at), seen});
      }
    }
    uint64_t context = 0;
    int hashed = 0;
    for (int k = p.sample_begin[i]; k < p.sample_begin[i + 1]; ++k) {
      const int position = p.positions[p.sample_rows[k]];
      for (; hashed <= position; ++hashed) context = Mix(context, cell(hashed));
      if (p.reads_states()) {
        result.token_ids.push_back(0);
        result.scores.emplace_back();
        result.states.push_back(StateOf(context));
        started.is_left.push_back(false);
        continue;
      }
      std::span<const uint32_t> mask;
      if (p.sampling[k].masked) {
        mask = masks.first(words);
        masks = masks.subspan(words);
      }
      const auto biases =
          std::span(p.biases).subspan(p.bias_begin[k], p.bias_begin[k + 1] - p.bias_begin[k]);
      std::vector<kernels::SeenToken> seen(p.seen.begin() + p.seen_begin[k],
                                           p.seen.begin() + p.seen_begin[k + 1]);
      const int row = p.sample_rows[k];
      if (p.token_ids[row] < 0 && model::HasPenalty(p.sampling[k]))
        model::AddSeen(seen, token_ids_[row]);
      const int32_t token =
          p.sample_targets[k] >= 0
              ? p.sample_targets[k]
              : Draw(context, position + 1, p.sampling[k], biases, seen, mask, options_.vocab_size);
      result.token_ids.push_back(token);
      started.is_left.push_back(options_.leaves_sample && options_.leaves_sample());
      result.scores.push_back(
          p.sampling[k].num_logprobs < 0
              ? model::TokenScore()
              : Score(context, token, p.sampling[k].num_logprobs, options_.vocab_size));
    }
  }
  if (options_.clock != nullptr && options_.cost) options_.clock->Advance(options_.cost(p));
  ++num_steps_;
  num_rows_ += p.num_rows();
  if (!started_.empty()) started_.back().is_overtaken = true;
  started_.push_back(std::move(started));
  return absl::OkStatus();
}

// The module sees the model's hidden state and the next token, so it knows all that the model will
// see at the next position.
absl::Status FakeExecutor::RunMtp(const model::StepPlan& p) {
  if (!options_.has_mtp || !started_.empty()) return Malformed("a step of the module", 0);
  if (p.hidden_rows.size() != p.token_ids.size() || !p.block_copies.empty()) {
    return Malformed("arrays of the module", 0);
  }
  const int size = options_.block_size;
  std::vector<Hidden> made;
  Started started;
  for (int i = 0; i < p.num_seqs(); ++i) {
    const auto table = std::span(p.block_tables).subspan(i * p.max_blocks, p.max_blocks);
    const auto slot = [&](int position) { return table[position / size] * size + position % size; };
    int sample = p.sample_begin[i];
    for (int r = p.query_begin[i]; r < p.query_begin[i + 1]; ++r) {
      const int32_t row = p.hidden_rows[r];
      if (row < 0 || row >= static_cast<int32_t>(hidden_.size())) return Malformed("hidden row", r);
      Hidden next;
      next.cell = CellAfter(hidden_[row].cell, token_ids_[r]);
      next.context = Mix(hidden_[row].context, next.cell);
      for (int at = 0; at < p.positions[r] && !hidden_is_guessed_; ++at) {
        if (mtp_cells_[slot(at)] != cells_[slot(at + 1)]) ++num_mtp_gaps_;
      }
      mtp_cells_[slot(p.positions[r])] = next.cell;
      if (sample == p.sample_begin[i + 1] || p.sample_rows[sample] != r) continue;
      made.push_back(next);
      const auto biases = std::span(p.biases).subspan(
          p.bias_begin[sample], p.bias_begin[sample + 1] - p.bias_begin[sample]);
      const auto seen = std::span(p.seen).subspan(p.seen_begin[sample],
                                                  p.seen_begin[sample + 1] - p.seen_begin[sample]);
      started.result.token_ids.push_back(Draw(next.context, p.positions[r] + 2, p.sampling[sample],
                                              biases, seen, {}, options_.vocab_size));
      started.result.scores.emplace_back();
      started.is_left.push_back(false);
      ++sample;
    }
    if (sample != p.sample_begin[i + 1]) return Malformed("samples of the module", i);
  }
  hidden_ = std::move(made);
  hidden_is_guessed_ = true;
  if (options_.clock != nullptr && options_.cost) options_.clock->Advance(options_.cost(p));
  ++num_mtp_steps_;
  started_.push_back(std::move(started));
  return absl::OkStatus();
}

std::vector<int32_t> FakeAnswer(const engine::Request& request, int index, int vocab_size) {
  std::vector<int32_t> answer;
  if (!request.received.empty()) {
    answer = request.received[index].tokens;
    if (request.received[index].finished) return answer;
  }
  model::SamplingParams sampling = request.sampling;
  sampling.sequence_index = index;

  uint64_t cell = kFirstCell, context = 0;
  std::map<int32_t, int32_t> counts;
  const auto read = [&](int32_t token) {
    cell = CellAfter(cell, token, request.adapter);
    context = Mix(context, cell);
  };
  for (const int32_t token : request.prompt) {
    counts[token] += 0;
    read(token);
  }
  for (const int32_t token : answer) {
    ++counts[token];
    read(token);
  }
  while (static_cast<int>(answer.size()) < request.max_tokens &&
         EndOf(request, answer) == engine::FinishReason::kNone) {
    const std::vector<uint32_t> mask = NextTokenMask(request, answer, vocab_size);
    std::vector<kernels::SeenToken> seen;
    for (const auto& [id, count] : counts) seen.push_back({id, count});
    const auto position = static_cast<int>(request.prompt.size() + answer.size());
    answer.push_back(
        Draw(context, position, sampling, request.biases, seen, std::span(mask), vocab_size));
    ++counts[answer.back()];
    read(answer.back());
  }
  return answer;
}

model::TokenScore FakeAnswerScore(const engine::Request& request,
                                  const std::vector<int32_t>& answer, int i, int vocab_size) {
  std::vector<int32_t> tokens = request.prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.begin() + i);
  return Score(ContextOf(tokens, request.adapter), answer[i], request.sampling.num_logprobs,
               vocab_size);
}

model::TokenScore FakePromptScore(const engine::Request& request, int i, int vocab_size) {
  return Score(ContextOf(std::span(request.prompt).first(i + 1), request.adapter),
               request.prompt[i + 1], request.num_prompt_logprobs, vocab_size);
}

std::vector<float> FakeState(const engine::Request& request) {
  const auto state_of = [&](size_t tokens) {
    return StateOf(
        ContextOf(std::span(request.prompt).first(tokens), request.adapter, request.token_types));
  };
  if (request.pooling == engine::Pooling::kLast) return state_of(request.prompt.size());
  if (request.pooling == engine::Pooling::kFirst) return state_of(1);
  std::vector<double> sum(kFakeStateSize);
  for (size_t n = 1; n <= request.prompt.size(); ++n) {
    const std::vector<float> state = state_of(n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(state[i]);
  }
  std::vector<float> mean;
  for (const double value : sum) {
    mean.push_back(static_cast<float>(value / static_cast<double>(request.prompt.size())));
  }
  return mean;
}

}  // namespace continuo

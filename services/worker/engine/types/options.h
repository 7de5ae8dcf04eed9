// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"

namespace continuo::engine {

class Drafter;

// The limits and policies of one engine. A value; the same for the whole life of the engine.
struct EngineOptions {
  int num_blocks = 0;   // KV blocks in the cache
  int block_size = 16;  // tokens of one KV block
  // Slots for the states of layers that have them; 0: the model has none. Half as many sequences
  // can run.
  int num_state_slots = 0;
  int vocab_size = 0;
  // The model is one of embeddings: requests read a state (Request::reads_state), and none samples.
  bool reads_states = false;
  // The model is an encoder: a prompt is computed in one step, whose tokens all see each other, and
  // is not cached. Prompts have at most max_batch_tokens.
  bool whole_prompts = false;
  int max_batch_tokens = 2048;  // tokens of one step
  int max_prefill_chunk = 512;  // prompt tokens of one sequence in one step
  int max_running = 256;        // sequences that hold KV blocks at a time
  // Prompt tokens that may wait, counting at least one for each sequence. Requests beyond this are
  // rejected (see QueueQuota).
  int64_t max_queued_tokens = 262144;
  // A step of more than one token is filled up to this predicted duration.
  absl::Duration target_step = absl::Milliseconds(200);
  // Length that each answer is expected to have until finished answers have shown better.
  int expected_answer_tokens = 512;
  // Key of the prefix hash; random in production.
  std::array<uint64_t, 2> hash_key = {0, 0};
  // Proposes draft tokens for speculative decoding. Null: one token of a sequence in each step.
  std::shared_ptr<Drafter> drafter;
  int max_drafts = 8;          // draft tokens of one sequence in one step
  bool always_drafts = false;  // also where they do not pay or exceed target_step
  // Run() begins with a few small steps that measure the executor.
  bool calibrate = true;
};

}  // namespace continuo::engine

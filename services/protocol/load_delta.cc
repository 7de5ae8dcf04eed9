// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/load_delta.h"

#include <algorithm>

namespace continuo::protocol {

namespace {

bool AreEqual(const v1::ServedAdapter& a, const v1::ServedAdapter& b) {
  return a.model() == b.model() && a.fingerprint() == b.fingerprint() &&
         a.on_demand() == b.on_demand();
}

}  // namespace

bool IsDeltaOf(const v1::WatchLoadResponse& report, const v1::WatchLoadResponse& full) {
  return report.worker() == full.worker() && report.incarnation() == full.incarnation() &&
         report.model() == full.model() && report.fingerprint() == full.fingerprint() &&
         report.tokenizer_fingerprint() == full.tokenizer_fingerprint() &&
         report.total_kv_blocks() == full.total_kv_blocks() &&
         report.block_size_tokens() == full.block_size_tokens() &&
         report.max_running_requests() == full.max_running_requests() &&
         report.total_state_slots() == full.total_state_slots() &&
         std::ranges::equal(report.adapters(), full.adapters(), AreEqual);
}

v1::WatchLoadResponse MakeLoadDelta(const v1::WatchLoadResponse& report) {
  v1::WatchLoadResponse delta;
  ApplyLoadDelta(report, &delta);
  delta.set_is_delta(true);
  return delta;
}

void ApplyLoadDelta(const v1::WatchLoadResponse& delta, v1::WatchLoadResponse* full) {
  full->set_state(delta.state());
  full->set_running_requests(delta.running_requests());
  full->set_waiting_requests(delta.waiting_requests());
  full->set_pending_prompt_tokens(delta.pending_prompt_tokens());
  full->set_used_kv_blocks(delta.used_kv_blocks());
  full->set_cached_kv_blocks(delta.cached_kv_blocks());
  full->set_used_state_slots(delta.used_state_slots());
  full->set_cached_state_slots(delta.cached_state_slots());
  full->set_steps(delta.steps());
  full->set_prefill_tokens_per_second(delta.prefill_tokens_per_second());
  full->set_decode_tokens_per_second(delta.decode_tokens_per_second());
  full->set_health(delta.health());
}

}  // namespace continuo::protocol

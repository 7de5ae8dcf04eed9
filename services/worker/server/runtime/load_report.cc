// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/runtime/load_report.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace continuo::server {

v1::ServedAdapter ToProto(const ServedAdapters::Offer& offer) {
  v1::ServedAdapter adapter;
  adapter.set_model(offer.model->name);
  adapter.set_fingerprint(offer.model->fingerprint);
  adapter.set_on_demand(!offer.in_memory);
  return adapter;
}

v1::WatchLoadResponse MakeLoadReport(const WorkerIdentity& identity, v1::WorkerState state,
                                     bool hung, const Serving* serving) {
  v1::WatchLoadResponse load;
  load.set_worker(identity.worker);
  load.set_incarnation(identity.incarnation);
  load.set_state(state);
  load.set_health(state == v1::WORKER_STATE_SERVING && !hung ? v1::WORKER_HEALTH_SERVING
                                                             : v1::WORKER_HEALTH_NOT_SERVING);
  load.set_model(identity.model_name);
  if (serving == nullptr) {
    for (const std::string& name : identity.adapter_names) load.add_adapters()->set_model(name);
    return load;
  }
  load.set_fingerprint(serving->model.fingerprint);
  load.set_tokenizer_fingerprint(serving->model.tokenizer_fingerprint);
  for (const ServedAdapters::Offer& offer : serving->adapters->All()) {
    *load.add_adapters() = ToProto(offer);
  }
  const engine::EngineLoad e = serving->engine->Load();
  load.set_running_requests(static_cast<uint32_t>(e.running));
  load.set_waiting_requests(
      static_cast<uint32_t>(static_cast<size_t>(e.waiting) + serving->adapters->num_waiting()));
  load.set_pending_prompt_tokens(static_cast<uint64_t>(e.pending_prompt_tokens));
  load.set_used_kv_blocks(static_cast<uint32_t>(e.used_blocks));
  load.set_cached_kv_blocks(static_cast<uint32_t>(e.cached_blocks));
  load.set_total_kv_blocks(static_cast<uint32_t>(e.total_blocks));
  load.set_block_size_tokens(static_cast<uint32_t>(e.block_size));
  load.set_max_running_requests(static_cast<uint32_t>(e.max_running));
  load.set_used_state_slots(static_cast<uint32_t>(e.used_states));
  load.set_cached_state_slots(static_cast<uint32_t>(e.cached_states));
  load.set_total_state_slots(static_cast<uint32_t>(e.total_states));
  load.set_steps(e.steps);
  load.set_prefill_tokens_per_second(e.prefill_tokens_per_second);
  load.set_decode_tokens_per_second(e.decode_tokens_per_second);
  return load;
}

}  // namespace continuo::server

// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_info.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace continuo::server {
namespace {

namespace engine_v1 = vllm::grpc::engine;

// A count that the protocol has in 32 bits.
int32_t Count(uint64_t number) {
  return static_cast<int32_t>(std::min<uint64_t>(number, std::numeric_limits<int32_t>::max()));
}

}  // namespace

engine_v1::GetModelInfoResponse VllmModelInfo(const ServedModel& model, const std::string& path) {
  engine_v1::GetModelInfoResponse info;
  info.set_model_path(path);
  info.set_tokenizer_path(path);
  info.set_served_model_name(model.name);
  info.set_is_generation(model.generates());
  info.set_max_context_length(static_cast<uint32_t>(model.max_context_tokens));
  info.set_max_req_input_len(model.max_context_tokens);
  info.set_vocab_size(static_cast<uint32_t>(model.vocab_size));
  info.set_model_type(model.architecture);
  info.add_architectures(model.architecture);
  for (const int32_t id : model.eos_ids) info.add_eos_token_ids(id);
  nlohmann::ordered_json defaults = nlohmann::ordered_json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) defaults[name] = *value;
  };
  add("temperature", model.defaults.temperature);
  add("top_p", model.defaults.top_p);
  add("top_k", model.defaults.top_k);
  add("min_p", model.defaults.min_p);
  add("repetition_penalty", model.defaults.repetition_penalty);
  if (!defaults.empty()) info.set_default_sampling_params_json(defaults.dump());
  return info;
}

engine_v1::GetServerInfoResponse VllmServerInfo(const v1::WatchLoadResponse& load,
                                                absl::Duration uptime) {
  engine_v1::GetServerInfoResponse info;
  info.set_uptime_seconds(absl::ToDoubleSeconds(uptime));
  info.set_server_type("vllm-grpc");
  info.set_data_parallel_size(1);
  info.set_block_size(Count(load.block_size_tokens()));
  info.set_max_num_seqs(Count(load.max_running_requests()));
  info.set_constrained_decoding_start("first_token");
  return info;
}

engine_v1::GetLoadsResponse VllmLoads(const v1::WatchLoadResponse& load, absl::Time now,
                                      std::string version) {
  engine_v1::GetLoadsResponse loads;
  loads.set_timestamp(absl::FormatTime(absl::RFC3339_full, now, absl::UTCTimeZone()));
  loads.set_version(std::move(version));
  loads.set_dp_rank_count(1);
  engine_v1::SchedulerLoad& rank = *loads.add_loads();
  rank.set_num_running_reqs(Count(load.running_requests()));
  rank.set_num_waiting_reqs(Count(load.waiting_requests()));
  rank.set_num_total_reqs(Count(uint64_t{load.running_requests()} + load.waiting_requests()));
  rank.set_num_used_tokens(Count(uint64_t{load.used_kv_blocks()} * load.block_size_tokens()));
  rank.set_max_total_num_tokens(Count(uint64_t{load.total_kv_blocks()} * load.block_size_tokens()));
  if (load.total_kv_blocks() > 0) {
    rank.set_token_usage(static_cast<double>(load.used_kv_blocks()) / load.total_kv_blocks());
  }
  rank.set_gen_throughput(load.decode_tokens_per_second());
  rank.set_utilization(load.max_running_requests() == 0
                           ? 0
                           : static_cast<double>(load.running_requests()) /
                                 load.max_running_requests());
  rank.set_max_running_requests(Count(load.max_running_requests()));
  rank.set_num_waiting_uncached_tokens(Count(load.pending_prompt_tokens()));
  return loads;
}

}  // namespace continuo::server

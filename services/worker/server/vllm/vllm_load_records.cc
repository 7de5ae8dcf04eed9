// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_load_records.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/worker/server/vllm/vllm_info.h"

namespace continuo::server {
namespace {

using EngineRecord = ::smg::grpc::common::EngineLoad;

// What GetLoads tells of rank 0.
EngineRecord RecordOf(const v1::WatchLoadResponse& load) {
  const auto loads = VllmLoads(load, absl::UnixEpoch(), "");
  const auto& rank = loads.loads(0);
  EngineRecord record;
  record.set_running_requests(static_cast<uint32_t>(rank.num_running_reqs()));
  record.set_waiting_requests(static_cast<uint32_t>(rank.num_waiting_reqs()));
  record.set_waiting_uncached_tokens(static_cast<uint32_t>(rank.num_waiting_uncached_tokens()));
  record.set_token_usage(rank.token_usage());
  record.set_active_token_usage(rank.token_usage());
  record.set_gen_throughput(rank.gen_throughput());
  record.set_max_running_requests(static_cast<uint32_t>(rank.max_running_requests()));
  record.set_num_used_tokens(rank.num_used_tokens());
  record.set_max_total_num_tokens(rank.max_total_num_tokens());
  return record;
}

// Small changes are left for the next heartbeat.
bool HasChanged(const EngineRecord& a, const EngineRecord& b) {
  constexpr double kUsage = 0.005, kRate = 50, kRelativeRate = 0.05;
  const double rate = std::abs(a.gen_throughput() - b.gen_throughput());
  return a.running_requests() != b.running_requests() ||
         a.waiting_requests() != b.waiting_requests() ||
         a.waiting_uncached_tokens() != b.waiting_uncached_tokens() ||
         a.max_running_requests() != b.max_running_requests() ||
         std::abs(a.token_usage() - b.token_usage()) > kUsage || rate > kRate ||
         rate > kRelativeRate * std::max(a.gen_throughput(), b.gen_throughput());
}

}  // namespace

void VllmLoadRecords::Number(EngineRecord record, ::smg::grpc::common::KvEventBatch& batch) {
  record.set_sample(++num_records_);
  *batch.mutable_load() = std::move(record);
}

void VllmLoadRecords::AddTo(const v1::WatchLoadResponse& load, absl::Duration now,
                            ::smg::grpc::common::KvEventBatch& batch) {
  last_ = RecordOf(load);
  number_ = batch.sequence_number();
  last_look_ = last_record_ = now;
  num_idle_ = 0;
  EngineRecord record = last_;
  if (num_records_ > 0) {
    record.clear_num_used_tokens();
    record.clear_max_total_num_tokens();
  }
  Number(std::move(record), batch);
}

bool VllmLoadRecords::NextAlone(const v1::WatchLoadResponse& load, absl::Duration now,
                                absl::Time time, ::smg::grpc::common::KvEventBatch& batch) {
  last_look_ = now;
  EngineRecord record = RecordOf(load);
  const bool has_changed = num_records_ == 0 || HasChanged(last_, record);
  const absl::Duration patience = num_idle_ < 2 ? kHeartbeat : kIdleHeartbeat;
  if (!has_changed && now - last_record_ < patience) return false;
  num_idle_ = has_changed ? 0 : num_idle_ + 1;
  last_record_ = now;
  last_ = record;
  batch.set_sequence_number(*number_);
  batch.set_timestamp(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  batch.set_dp_rank(0);
  record.set_load_only(true);
  Number(std::move(record), batch);
  return true;
}

}  // namespace continuo::server

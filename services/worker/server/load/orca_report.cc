// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load/orca_report.h"

#include <algorithm>
#include <cstdint>

namespace continuo::server {
namespace {

constexpr double kMinUtilization = 0.01;
constexpr double kOfNotServing = 2.0;  // all of it, and a batch that waits

double Share(uint32_t part, uint32_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / whole;
}

}  // namespace

xds::data::orca::v3::OrcaLoadReport MakeOrcaReport(const v1::WatchLoadResponse& load) {
  const double cache = std::max(Share(load.used_kv_blocks(), load.total_kv_blocks()),
                                Share(load.used_state_slots(), load.total_state_slots()));
  const double running = Share(load.running_requests(), load.max_running_requests());
  const double waiting = Share(load.waiting_requests(), load.max_running_requests());
  xds::data::orca::v3::OrcaLoadReport report;
  (*report.mutable_utilization())["kv_cache"] = cache;
  report.set_application_utilization(
      load.health() == v1::WORKER_HEALTH_SERVING
          ? std::max(std::max(cache, running) + waiting, kMinUtilization)
          : kOfNotServing);
  report.set_rps_fractional(1);
  auto& named = *report.mutable_named_metrics();
  named["running_requests"] = load.running_requests();
  named["waiting_requests"] = load.waiting_requests();
  named["pending_prompt_tokens"] = static_cast<double>(load.pending_prompt_tokens());
  return report;
}

}  // namespace continuo::server

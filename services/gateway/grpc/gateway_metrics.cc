// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/gateway_metrics.h"

#include <algorithm>
#include <array>
#include <map>

#include "services/common/telemetry/metrics.h"
#include "services/common/version.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

constexpr size_t kMaxTenants = 1000;
constexpr std::string_view kUnknownModel = "unknown";
constexpr std::array kMigrationReasons = {"drained", "lost", "silent", "fault", "overloaded"};
constexpr std::array kRejectReasons = {protocol::kReasonOverloaded, protocol::kReasonRateLimited,
                                       protocol::kReasonNoWorker, protocol::kReasonContinue};

// Bucket bounds in seconds. The first two are those that dashboards of vLLM expect.
const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const prometheus::Histogram::BucketBoundaries kInterTokenBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const prometheus::Histogram::BucketBoundaries kStallBuckets = {0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                                               1.0,  2.5,   5.0,  10.0, 30.0, 60.0};

void CollectGauges(const Admission& admission, const LoadView& view, const Clock& clock,
                   common::MetricFamilies& families) {
  const Admission::Counts counts = admission.counts();
  common::AddGauge(families, "continuo_gateway_open_streams", "Calls of Generate that are open", {},
                   static_cast<double>(counts.open_requests));
  common::AddGauge(families, "continuo_gateway_queued_requests", "Open calls without an answer yet",
                   {}, static_cast<double>(counts.queued_requests));
  const std::shared_ptr<const LoadSnapshot> snapshot = view.Get();
  std::map<std::string, int64_t> queued_tokens = {{std::string(kUnknownModel), 0}};
  for (const std::string& model : snapshot->known_models) queued_tokens[model] = 0;
  for (const auto& [model, of_model] : admission.counts_by_model()) {
    const auto known = queued_tokens.find(model);
    (known != queued_tokens.end() ? known->second : queued_tokens[std::string(kUnknownModel)]) +=
        of_model.queued_tokens;
  }
  for (const auto& [model, tokens] : queued_tokens) {
    common::AddGauge(families, "continuo_gateway_queued_prompt_tokens",
                     "Prompt tokens, estimated, of calls without an answer yet", {{"model", model}},
                     static_cast<double>(tokens));
  }
  std::map<std::pair<std::string, WorkerState>, int> workers;
  for (const std::string& model : snapshot->known_models) {
    for (const WorkerState state : {WorkerState::kLost, WorkerState::kHung, WorkerState::kLoading,
                                    WorkerState::kServing, WorkerState::kDraining}) {
      workers[{model, state}] = 0;
    }
  }
  absl::Duration age = absl::ZeroDuration();
  for (const auto& load : snapshot->workers) {
    workers[{load->model, load->state}] += 1;
    if (load->state != WorkerState::kLost) age = std::max(age, clock.Elapsed() - load->report_time);
  }
  for (const auto& [key, count] : workers) {
    common::AddGauge(families, "continuo_gateway_workers", "Workers by what they can do now",
                     {{"model", key.first}, {"state", std::string(WorkerStateName(key.second))}},
                     count);
  }
  common::AddGauge(families, "continuo_gateway_load_age_seconds",
                   "Age of the oldest load report among workers that are not lost", {},
                   absl::ToDoubleSeconds(age));
}

template <typename Builder>
auto& Family(Builder builder, const char* name, const char* help, prometheus::Registry& registry) {
  return builder.Name(name).Help(help).Register(registry);
}

}  // namespace

GatewayMetrics::GatewayMetrics(const Admission* admission, const LoadView* view, const Clock* clock)
    : admission_(admission),
      view_(view),
      clock_(clock),
      registry_(std::make_shared<prometheus::Registry>()),
      requests_(Family(prometheus::BuildCounter(), "continuo_gateway_requests_total",
                       "Calls of Generate that ended, by gRPC status", *registry_)),
      migrations_(Family(prometheus::BuildCounter(), "continuo_gateway_migrations_total",
                         "Times that a stream went on at another worker", *registry_)),
      rejected_(Family(prometheus::BuildCounter(), "continuo_gateway_rejected_total",
                       "Calls rejected or given up for want of capacity", *registry_)),
      tenant_tokens_(Family(prometheus::BuildCounter(), "continuo_gateway_tenant_tokens_total",
                            "Tokens by tenant; kind is prompt or completion", *registry_)),
      time_to_first_token_(Family(prometheus::BuildHistogram(),
                                  "continuo_gateway_time_to_first_token_seconds",
                                  "From the call to the first token's arrival", *registry_)),
      inter_token_(Family(prometheus::BuildHistogram(), "continuo_gateway_inter_token_seconds",
                          "Between two responses with tokens, by token of the second", *registry_)),
      migration_stall_(
          Family(prometheus::BuildHistogram(), "continuo_gateway_migration_stall_seconds",
                 "From a worker's loss to the next worker's first response", *registry_)),
      gauges_(common::MakeCollectable([this](common::MetricFamilies& families) {
        for (const std::string& model : view_->Get()->known_models) Series(model);
        CollectGauges(*admission_, *view_, *clock_, families);
        common::AddCounter(families, "continuo_gateway_unauthenticated_total",
                           "Calls of any method without a key that is known", {},
                           static_cast<double>(unauthenticated_.load(std::memory_order_relaxed)));
        common::AddCounter(families, "continuo_gateway_spans_dropped_total",
                           "Spans that no collector took", {},
                           static_cast<double>(dropped_spans_()));
        common::AddGauge(families, "continuo_gateway_build_info", "1; the labels say what runs",
                         {{"version", std::string(common::Version())}}, 1);
        common::AddProcessMetrics(families);
      })) {
  for (const std::string_view reason : kRejectReasons) {
    rejected_.Add({{"reason", std::string(reason)}});
  }
  OnTenantTokens("default", 0, 0);
}

std::string GatewayMetrics::Known(std::string_view model) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  return std::string(std::ranges::binary_search(snapshot->known_models, model) ? model
                                                                               : kUnknownModel);
}

GatewayMetrics::ModelSeries GatewayMetrics::Series(std::string_view model) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, series] : series_) {
    if (name == model) return series;
  }
  const std::string name(model);
  // The series of all codes start at 0, since one that starts at 1 has no rate.
  for (const std::string_view code : protocol::kStatusNames) {
    requests_.Add({{"model", name}, {"code", std::string(code)}});
  }
  for (const char* reason : kMigrationReasons)
    migrations_.Add({{"model", name}, {"reason", reason}});
  const ModelSeries series = {
      .time_to_first_token = &time_to_first_token_.Add({{"model", name}}, kFirstTokenBuckets),
      .inter_token = &inter_token_.Add({{"model", name}}, kInterTokenBuckets),
      .migration_stall = &migration_stall_.Add({{"model", name}}, kStallBuckets),
  };
  series_.emplace_back(name, series);
  return series;
}

void GatewayMetrics::OnFirstToken(std::string_view model, absl::Duration since_start) {
  Series(Known(model)).time_to_first_token->Observe(absl::ToDoubleSeconds(since_start));
}

void GatewayMetrics::OnTokens(std::string_view model, absl::Duration since_last, int tokens) {
  // One observation per response: its tokens came together, so each took an equal share of the gap.
  Series(Known(model))
      .inter_token->Observe(absl::ToDoubleSeconds(since_last / std::max(tokens, 1)));
}

void GatewayMetrics::OnMigration(std::string_view model, std::string_view reason) {
  migrations_.Add({{"model", Known(model)}, {"reason", std::string(reason)}}).Increment();
}

void GatewayMetrics::OnStall(std::string_view model, absl::Duration stall) {
  Series(Known(model)).migration_stall->Observe(absl::ToDoubleSeconds(stall));
}

void GatewayMetrics::OnRequestEnd(std::string_view model, const absl::Status& status) {
  requests_
      .Add({{"model", Known(model)}, {"code", std::string(protocol::StatusName(status.code()))}})
      .Increment();
  const std::string reason = protocol::ReasonOf(status);
  if (std::ranges::find(kRejectReasons, reason) != kRejectReasons.end()) {
    rejected_.Add({{"reason", reason}}).Increment();
  }
}

void GatewayMetrics::OnTenantTokens(const std::string& tenant, int64_t prompt, int64_t completion) {
  std::string label = tenant;
  {
    absl::MutexLock lock(&mutex_);
    if (!tenants_.contains(tenant)) {
      if (tenants_.size() < kMaxTenants) {
        tenants_.insert(tenant);
      } else {
        label = "other";
      }
    }
  }
  tenant_tokens_.Add({{"tenant", label}, {"kind", "prompt"}})
      .Increment(static_cast<double>(prompt));
  tenant_tokens_.Add({{"tenant", label}, {"kind", "completion"}})
      .Increment(static_cast<double>(completion));
}

std::vector<std::shared_ptr<prometheus::Collectable>> GatewayMetrics::collectables() const {
  return {gauges_, registry_};  // In this order: the first creates series of the second.
}

}  // namespace continuo::gateway

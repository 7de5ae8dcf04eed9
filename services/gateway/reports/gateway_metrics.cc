// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/gateway_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/common/telemetry/metrics.h"
#include "services/common/version.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

constexpr char kOtherTenants[] = "other";
constexpr std::string_view kUnknownModel = "unknown";
constexpr auto kUnknownCode = static_cast<size_t>(absl::StatusCode::kUnknown);
constexpr std::array<std::string_view, 5> kMigrationReasons = {"drained", "lost", "silent", "fault",
                                                               "overloaded"};
// The reasons that an end of this status may have, beside none.
struct EndReason {
  absl::StatusCode code;
  std::string_view reason;
};
constexpr std::array<EndReason, 11> kEndReasons = {{
    {absl::StatusCode::kUnavailable, protocol::kReasonContinue},
    {absl::StatusCode::kUnavailable, protocol::kReasonDraining},
    {absl::StatusCode::kUnavailable, protocol::kReasonNoWorker},
    {absl::StatusCode::kUnavailable, protocol::kReasonWorkerLost},
    {absl::StatusCode::kResourceExhausted, protocol::kReasonOverloaded},
    {absl::StatusCode::kResourceExhausted, protocol::kReasonRateLimited},
    {absl::StatusCode::kResourceExhausted, protocol::kReasonSlowReader},
    {absl::StatusCode::kInvalidArgument, protocol::kReasonContextTooLong},
    {absl::StatusCode::kFailedPrecondition, protocol::kReasonModelChanged},
    {absl::StatusCode::kInternal, protocol::kReasonPoison},
    {absl::StatusCode::kAborted, protocol::kReasonAborted},
}};
constexpr std::array kRejectReasons = {protocol::kReasonOverloaded, protocol::kReasonRateLimited,
                                       protocol::kReasonNoWorker, protocol::kReasonContinue};

// Bucket bounds in seconds. All but the last are those that dashboards of vLLM expect.
const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const prometheus::Histogram::BucketBoundaries kRequestBuckets = {
    0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,  15.0,
    20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0};
const prometheus::Histogram::BucketBoundaries kInterTokenBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const prometheus::Histogram::BucketBoundaries kStallBuckets = {0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                                               1.0,  2.5,   5.0,  10.0, 30.0, 60.0};

using PoolName = std::function<std::string(int)>;

void CollectLoad(const Admission& admission, common::MetricFamilies& families) {
  const Admission::Counts counts = admission.counts();
  common::AddGauge(families, "continuo_gateway_open_streams",
                   "Calls of Generate and Embed that are open", {},
                   static_cast<double>(counts.open_requests));
  common::AddGauge(families, "continuo_gateway_queued_requests", "Open calls without an answer yet",
                   {}, static_cast<double>(counts.queued_requests));
  common::AddGauge(families, "continuo_gateway_saturation_ratio",
                   "The largest share in use of a limit of all tenants", {},
                   counts.SaturationOf(admission.limits()));
}

void CollectAdmission(const Admission& admission, const LoadSnapshot& snapshot,
                      common::MetricFamilies& families) {
  const Admission::Counts counts = admission.counts();
  const AdmissionLimits& limits = admission.limits();
  const auto add = [&](const char* name, const char* help, int64_t value) {
    common::AddGauge(families, name, help, {}, static_cast<double>(value));
  };
  add("continuo_gateway_max_open_streams", "The limit of open_streams", limits.max_open_requests);
  add("continuo_gateway_open_bytes", "Bytes of the requests that are open", counts.open_bytes);
  add("continuo_gateway_max_open_bytes", "The limit of open_bytes", limits.max_open_bytes);
  add("continuo_gateway_cold_requests", "Open calls that wait for a model without a worker",
      counts.cold_requests);
  add("continuo_gateway_max_queued_prompt_tokens",
      "The limit of queued_prompt_tokens of all models", limits.max_queued_tokens);
  std::map<std::string, int64_t> queued_tokens = {{std::string(kUnknownModel), 0}};
  for (const std::string& model : snapshot.known_models) queued_tokens[model] = 0;
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
}

void CollectWorkers(const LoadSnapshot& snapshot, const PoolName& pool_name, const Clock& clock,
                    common::MetricFamilies& families) {
  constexpr std::array kStates = {WorkerState::kLost, WorkerState::kHung, WorkerState::kLoading,
                                  WorkerState::kServing, WorkerState::kDraining};
  // By model, pool and state. A known model without a worker has no pool.
  std::map<std::tuple<std::string, int, WorkerState>, int> workers;
  std::map<std::tuple<std::string, int, std::string>, int> fingerprints;
  const auto add_zeros = [&](const std::string& model, int pool) {
    for (const WorkerState state : kStates) workers.try_emplace({model, pool, state}, 0);
  };
  absl::Duration age = absl::ZeroDuration();
  for (const auto& load : snapshot.workers) {
    add_zeros(load->model, load->pool);
    workers[{load->model, load->pool, load->state}] += 1;
    if (load->state == WorkerState::kServing && !load->fingerprint.empty()) {
      fingerprints[{load->model, load->pool, load->fingerprint}] += 1;
    }
    if (load->state != WorkerState::kLost) age = std::max(age, clock.Elapsed() - load->report_time);
  }
  for (const std::string& model : snapshot.known_models) {
    const auto any = workers.lower_bound({model, std::numeric_limits<int>::min(), kStates[0]});
    if (any == workers.end() || std::get<0>(any->first) != model) add_zeros(model, -1);
  }
  for (const auto& [key, count] : workers) {
    const auto& [model, pool, state] = key;
    // Sums over models without a parent count a worker once, whatever adapters it has.
    const auto adapter = snapshot.adapters.find(model);
    common::AddGauge(families, "continuo_gateway_workers", "Workers by what they can do now",
                     {{"model", model},
                      {"parent", adapter == snapshot.adapters.end() ? "" : adapter->second},
                      {"pool", pool_name(pool)},
                      {"state", std::string(WorkerStateName(state))}},
                     count);
  }
  for (const auto& [key, count] : fingerprints) {
    const auto& [model, pool, fingerprint] = key;
    common::AddGauge(
        families, "continuo_gateway_fingerprint_workers", "Serving workers by their fingerprint",
        {{"model", model}, {"pool", pool_name(pool)}, {"fingerprint", fingerprint}}, count);
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

GatewayMetrics::GatewayMetrics(const Admission* admission, const LoadView* view, const Clock* clock,
                               int max_tenants)
    : admission_(admission),
      view_(view),
      clock_(clock),
      max_tenants_(static_cast<size_t>(max_tenants)),
      registry_(std::make_shared<prometheus::Registry>()),
      requests_(Family(prometheus::BuildCounter(), "continuo_gateway_requests_total",
                       "Calls of Generate and Embed that ended, by gRPC status and reason",
                       *registry_)),
      migrations_(Family(prometheus::BuildCounter(), "continuo_gateway_migrations_total",
                         "Times that a call of Generate or Embed went on at another worker",
                         *registry_)),
      rejected_(Family(prometheus::BuildCounter(), "continuo_gateway_rejected_total",
                       "Calls rejected or given up for want of capacity", *registry_)),
      tenant_tokens_(Family(prometheus::BuildCounter(), "continuo_gateway_tenant_tokens_total",
                            "Tokens by tenant; kind is prompt or completion", *registry_)),
      request_(Family(prometheus::BuildHistogram(), "continuo_gateway_request_seconds",
                      "Calls of Generate and Embed that ended well, from admission to their end",
                      *registry_)),
      queue_(Family(prometheus::BuildHistogram(), "continuo_gateway_queue_seconds",
                    "From the call to the begin of its prompt at a worker", *registry_)),
      time_to_first_token_(Family(prometheus::BuildHistogram(),
                                  "continuo_gateway_time_to_first_token_seconds",
                                  "From the call to the first token's arrival", *registry_)),
      inter_token_(Family(prometheus::BuildHistogram(), "continuo_gateway_inter_token_seconds",
                          "Between two responses with tokens, by token of the second", *registry_)),
      migration_stall_(
          Family(prometheus::BuildHistogram(), "continuo_gateway_migration_stall_seconds",
                 "From a worker's loss to the next worker's first response", *registry_)),
      load_(common::MakeCollectable(
          [this](common::MetricFamilies& families) { CollectLoad(*admission_, families); })),
      gauges_(common::MakeCollectable([this](common::MetricFamilies& families) {
        const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
        FollowModels(*snapshot);
        CollectAdmission(*admission_, *snapshot, families);
        CollectWorkers(
            *snapshot, [this](int pool) { return PoolName(pool); }, *clock_, families);
        common::AddCounter(families, "continuo_gateway_unauthenticated_total",
                           "Calls of any method without a key that is known", {},
                           static_cast<double>(unauthenticated_.load(std::memory_order_relaxed)));
        for (size_t i = 0; i < kKeyLimitNames.size(); ++i) {
          common::AddCounter(
              families, "continuo_gateway_key_rejections_total",
              "Requests rejected by a limit of their key",
              {{"limit", std::string(kKeyLimitNames[i])}},
              key_limiter_ == nullptr
                  ? 0
                  : static_cast<double>(key_limiter_->num_rejected(static_cast<KeyLimit>(i))));
        }
        common::AddCounter(families, "continuo_gateway_spans_dropped_total",
                           "Spans that no collector took", {},
                           static_cast<double>(dropped_spans_()));
        common::AddCounter(families, "continuo_gateway_usage_records_dropped_total",
                           "Records of the ledger that no collector took", {},
                           static_cast<double>(dropped_records_()));
        common::AddGauge(families, "continuo_gateway_build_info", "1; the labels say what runs",
                         {{"version", std::string(common::Version())}}, 1);
        common::AddProcessMetrics(families);
      })) {
  for (const std::string_view reason : kRejectReasons) {
    rejected_.Add({{"reason", std::string(reason)}});
  }
  others_ = MakeTenant(kOtherTenants);
  OnTenantTokens("default", {});
}

std::string_view GatewayMetrics::Known(std::string_view model) const {
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  return std::ranges::binary_search(snapshot->known_models, model) ? model : kUnknownModel;
}

std::string GatewayMetrics::PoolName(int pool) const {
  if (pool < 0) return "";
  const auto index = static_cast<size_t>(pool);
  return index < pool_names_.size() ? pool_names_[index] : absl::StrCat(pool);
}

template <typename Use>
void GatewayMetrics::With(const RelayLabels& labels, Use use) {
  if (WithFound(labels, use)) return;
  absl::MutexLock lock(&mutex_);
  use(Series(labels));
}

template <typename Use>
bool GatewayMetrics::WithFound(const RelayLabels& labels, Use use) {
  absl::ReaderMutexLock lock(&mutex_);
  const StreamSeries* const series = FindSeries(labels);
  if (series != nullptr) use(*series);
  return series != nullptr;
}

const GatewayMetrics::StreamSeries* GatewayMetrics::FindSeries(const RelayLabels& labels) const {
  const auto model = series_.find(labels.model);
  if (model == series_.end()) return nullptr;
  const auto series = model->second.by_pool.find(labels.pool);
  return series == model->second.by_pool.end() ? nullptr : &series->second;
}

const GatewayMetrics::StreamSeries& GatewayMetrics::Series(const RelayLabels& labels) {
  // A model that was known stays known until its series are dropped.
  if (const StreamSeries* series = FindSeries(labels)) return *series;
  const RelayLabels known = {.model = Known(labels.model), .pool = labels.pool};
  if (const StreamSeries* series = FindSeries(known)) return *series;
  ModelSeries& model = series_[std::string(known.model)];
  model.time = clock_->Elapsed();
  return model.by_pool.emplace(known.pool, MakeSeries(known)).first->second;
}

GatewayMetrics::StreamSeries GatewayMetrics::MakeSeries(const RelayLabels& labels) {
  const prometheus::Labels both = {{"model", std::string(labels.model)},
                                   {"pool", PoolName(labels.pool)}};
  const auto with = [&](std::initializer_list<std::pair<const std::string, std::string>> more) {
    prometheus::Labels all = both;
    all.insert(more);
    return all;
  };
  StreamSeries series = {
      .request = &request_.Add(both, kRequestBuckets),
      .queue = &queue_.Add(both, kRequestBuckets),
      .time_to_first_token = &time_to_first_token_.Add(both, kFirstTokenBuckets),
      .inter_token = &inter_token_.Add(both, kInterTokenBuckets),
      .migration_stall = &migration_stall_.Add(both, kStallBuckets),
  };
  // The series of all codes start at 0, since one that starts at 1 has no rate.
  for (size_t code = 0; code < series.ends.size(); ++code) {
    series.ends[code] =
        &requests_.Add(with({{"code", std::string(protocol::kStatusNames[code])}, {"reason", ""}}));
  }
  static_assert(kEndReasons.size() == kNumEndReasons);
  for (size_t i = 0; i < kEndReasons.size(); ++i) {
    series.ends_by_reason[i] =
        &requests_.Add(with({{"code", std::string(protocol::StatusName(kEndReasons[i].code))},
                             {"reason", std::string(kEndReasons[i].reason)}}));
  }
  static_assert(kMigrationReasons.size() == kNumMigrationReasons);
  for (size_t i = 0; i < kMigrationReasons.size(); ++i) {
    series.migrations[i] = &migrations_.Add(with({{"reason", std::string(kMigrationReasons[i])}}));
  }
  return series;
}

void GatewayMetrics::Remove(const StreamSeries& series) {
  for (prometheus::Counter* const counter : series.ends) requests_.Remove(counter);
  for (prometheus::Counter* const counter : series.ends_by_reason) requests_.Remove(counter);
  for (prometheus::Counter* const counter : series.migrations) migrations_.Remove(counter);
  request_.Remove(series.request);
  queue_.Remove(series.queue);
  time_to_first_token_.Remove(series.time_to_first_token);
  inter_token_.Remove(series.inter_token);
  migration_stall_.Remove(series.migration_stall);
}

void GatewayMetrics::FollowModels(const LoadSnapshot& snapshot) {
  const absl::Duration now = clock_->Elapsed();
  absl::MutexLock lock(&mutex_);
  for (const std::string& model : snapshot.known_models) Series({.model = model});
  for (const auto& load : snapshot.workers) {
    if (!load->model.empty()) Series({.model = load->model, .pool = load->pool});
  }
  for (auto& [model, series] : series_) {
    const bool is_known =
        model == kUnknownModel || std::ranges::binary_search(snapshot.known_models, model);
    if (is_known) series.time = now;
  }
  std::erase_if(series_, [&](const auto& entry) {
    if (now - entry.second.time < kModelForgotten) return false;
    for (const auto& [pool, series] : entry.second.by_pool) Remove(series);
    return true;
  });
}

void GatewayMetrics::OnBegun(const RelayLabels& labels, absl::Duration since_start) {
  With(labels, [&](const StreamSeries& series) {
    series.queue->Observe(absl::ToDoubleSeconds(since_start));
  });
}

void GatewayMetrics::OnFirstToken(const RelayLabels& labels, absl::Duration since_start) {
  With(labels, [&](const StreamSeries& series) {
    series.time_to_first_token->Observe(absl::ToDoubleSeconds(since_start));
  });
}

void GatewayMetrics::OnTokens(const RelayLabels& labels, absl::Duration since_last, int tokens) {
  // One observation per response: its tokens came together, so each took an equal share of the gap.
  With(labels, [&](const StreamSeries& series) {
    series.inter_token->Observe(absl::ToDoubleSeconds(since_last / std::max(tokens, 1)));
  });
}

void GatewayMetrics::OnMigration(const RelayLabels& labels, std::string_view reason) {
  const auto known = std::ranges::find(kMigrationReasons, reason);
  CONTINUO_CHECK(known != kMigrationReasons.end());
  With(labels, [&](const StreamSeries& series) {
    series.migrations[static_cast<size_t>(known - kMigrationReasons.begin())]->Increment();
  });
}

void GatewayMetrics::OnStall(const RelayLabels& labels, absl::Duration stall) {
  With(labels, [&](const StreamSeries& series) {
    series.migration_stall->Observe(absl::ToDoubleSeconds(stall));
  });
}

void GatewayMetrics::CountEnd(const RelayLabels& labels, const absl::Status& status) {
  const std::string reason = protocol::ReasonOf(status);
  // A worker's reason is its own word, and must not create series.
  const auto end = std::ranges::find_if(kEndReasons, [&](const EndReason& known) {
    return known.code == status.code() && known.reason == reason;
  });
  const auto count = [&](const StreamSeries& series) {
    const auto code = static_cast<size_t>(status.code());
    prometheus::Counter* const counter =
        end != kEndReasons.end()
            ? series.ends_by_reason[static_cast<size_t>(end - kEndReasons.begin())]
            : series.ends[code < series.ends.size() ? code : kUnknownCode];
    counter->Increment();
  };
  if (!WithFound(labels, count)) {
    if (const std::string_view model = Known(labels.model); model != kUnknownModel) {
      With(labels, count);
    } else {
      // Such calls have ends alone.
      requests_
          .Add({{"model", std::string(model)},
                {"pool", PoolName(labels.pool)},
                {"code", std::string(protocol::StatusName(status.code()))},
                {"reason", end != kEndReasons.end() ? std::string(end->reason) : ""}})
          .Increment();
    }
  }
  if (std::ranges::find(kRejectReasons, reason) != kRejectReasons.end()) {
    rejected_.Add({{"reason", reason}}).Increment();
  }
}

void GatewayMetrics::OnRequestEnd(const RelayLabels& labels, const absl::Status& status,
                                  absl::Duration duration) {
  CountEnd(labels, status);
  if (!status.ok()) return;
  With(labels, [&](const StreamSeries& series) {
    series.request->Observe(absl::ToDoubleSeconds(duration));
  });
}

void GatewayMetrics::OnRejected(std::string_view model, const absl::Status& status) {
  CountEnd({.model = model}, status);
}

GatewayMetrics::TenantSeries GatewayMetrics::MakeTenant(const std::string& label) {
  TenantSeries series;
  constexpr std::array<const char*, kNumTokenKinds> kKinds = {"prompt", "completion", "generated",
                                                              "cached", "reasoning"};
  for (size_t i = 0; i < kKinds.size(); ++i) {
    series.kinds[i] = &tenant_tokens_.Add({{"tenant", label}, {"kind", kKinds[i]}});
  }
  return series;
}

GatewayMetrics::TenantSeries& GatewayMetrics::Tenant(const std::string& tenant) {
  if (const auto known = tenants_.find(tenant); known != tenants_.end()) return known->second;
  const absl::Duration now = clock_->Elapsed();
  if (tenants_.size() >= max_tenants_ && now >= next_prune_) {
    next_prune_ = now + kTenantQuiet / 60;
    std::erase_if(tenants_, [&](const auto& entry) {
      if (now - entry.second.time < kTenantQuiet) return false;
      for (prometheus::Counter* const counter : entry.second.kinds) tenant_tokens_.Remove(counter);
      return true;
    });
  }
  if (tenants_.size() < max_tenants_ && tenant != kOtherTenants) {
    return tenants_.emplace(tenant, MakeTenant(tenant)).first->second;
  }
  return others_;
}

void GatewayMetrics::OnTenantTokens(const std::string& tenant, const Tokens& tokens) {
  absl::MutexLock lock(&mutex_);
  TenantSeries& series = Tenant(tenant);
  series.time = clock_->Elapsed();
  const std::array<int64_t, kNumTokenKinds> counts = {
      tokens.prompt, tokens.completion, tokens.generated, tokens.cached, tokens.reasoning};
  for (size_t i = 0; i < counts.size(); ++i) {
    series.kinds[i]->Increment(static_cast<double>(counts[i]));
  }
}

std::vector<std::shared_ptr<prometheus::Collectable>> GatewayMetrics::collectables() const {
  // In this order: the second creates series of the third.
  return {load_, gauges_, registry_};
}

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/requests/key_limiter.h"
#include "services/gateway/routing/load_view.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {

// All metrics of the gateway, named continuo_gateway_…. Gauges of other objects (open streams,
// queues, workers) are read from them when Prometheus scrapes. Thread-safe.
class GatewayMetrics : public RelayObserver {
 public:
  // A tenant without requests for so long makes room for another one's series.
  static constexpr absl::Duration kTenantQuiet = absl::Hours(1);
  // The series of a model, such as an unloaded LoRA adapter, that the fleet does not know any more
  // are dropped after so long.
  static constexpr absl::Duration kModelForgotten = absl::Hours(1);

  // Everything passed, and this object, outlives the result of collectables(). `max_tenants` is the
  // number of tenants with series of their own.
  GatewayMetrics(const Admission* admission, const LoadView* view, const Clock* clock,
                 int max_tenants = 1000);

  // Sets the names of the pools, by their numbers. Called before the first request.
  void set_pool_names(std::vector<std::string> names) { pool_names_ = std::move(names); }
  // The name of a pool; empty for -1, which is none.
  std::string PoolName(int pool) const;

  void OnBegun(const RelayLabels& labels, absl::Duration since_start) override;
  void OnFirstToken(const RelayLabels& labels, absl::Duration since_start) override;
  void OnTokens(const RelayLabels& labels, absl::Duration since_last, int tokens) override;
  void OnMigration(const RelayLabels& labels, std::string_view reason) override;
  void OnStall(const RelayLabels& labels, absl::Duration stall) override;

  // A Generate call has ended. Its model is "" where none was found.
  void OnRequestEnd(const RelayLabels& labels, const absl::Status& status, absl::Duration duration);
  // A Generate call was rejected.
  void OnRejected(std::string_view model, const absl::Status& status);
  // The tokens that one call used, as in its usage record.
  struct Tokens {
    int64_t prompt = 0, completion = 0, generated = 0, cached = 0, reasoning = 0;
  };
  void OnTenantTokens(const std::string& tenant, const Tokens& tokens);
  // A call of any method, over gRPC or HTTP, came without a known key.
  void OnUnauthenticated() { unauthenticated_.fetch_add(1, std::memory_order_relaxed); }
  // Sets the source of the rejections by keys' limits. Called before the first scrape; without it
  // they are 0.
  void set_key_limiter(const KeyLimiter* limiter) { key_limiter_ = limiter; }
  // Sets the source of the number of dropped spans. Called before the first scrape.
  void set_dropped_spans(std::function<int64_t()> dropped) { dropped_spans_ = std::move(dropped); }
  // The same for records of the ledger.
  void set_dropped_records(std::function<int64_t()> dropped) {
    dropped_records_ = std::move(dropped);
  }

  std::vector<std::shared_ptr<prometheus::Collectable>> collectables() const;
  // The gauges of /metrics/load: load alone, without names, cheap to collect.
  std::vector<std::shared_ptr<prometheus::Collectable>> load_collectables() const {
    return {load_};
  }

 private:
  static constexpr size_t kNumEndReasons = 11;  // that a call may end with, beside none
  static constexpr size_t kNumMigrationReasons = 5;
  // The series of one model and pool.
  struct StreamSeries {
    std::array<prometheus::Counter*, protocol::kStatusNames.size()> ends;  // without a reason
    std::array<prometheus::Counter*, kNumEndReasons> ends_by_reason;
    std::array<prometheus::Counter*, kNumMigrationReasons> migrations;
    prometheus::Histogram* request;
    prometheus::Histogram* queue;
    prometheus::Histogram* time_to_first_token;
    prometheus::Histogram* inter_token;
    prometheus::Histogram* migration_stall;
  };
  // Those of one model, by pool, and when the fleet was last seen to know it.
  struct ModelSeries {
    absl::flat_hash_map<int, StreamSeries> by_pool;
    absl::Duration time = absl::ZeroDuration();
  };
  // The counters of one tenant, and when it last ended a request.
  static constexpr size_t kNumTokenKinds = 5;
  struct TenantSeries {
    std::array<prometheus::Counter*, kNumTokenKinds> kinds;
    absl::Duration time = absl::ZeroDuration();
  };
  // The label of a model. A client must not create series, so a name that no worker has reported
  // is "unknown".
  std::string_view Known(std::string_view model) const;
  // Calls use(series) with those of the model and pool, which it creates, at 0, the first time.
  template <typename Use>
  void With(const RelayLabels& labels, Use use);
  // The same if there are any; else returns false.
  template <typename Use>
  bool WithFound(const RelayLabels& labels, Use use);
  // Returns the series of the model and pool; creates them where there are none.
  const StreamSeries& Series(const RelayLabels& labels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the series, or null where nothing has created them.
  const StreamSeries* FindSeries(const RelayLabels& labels) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  StreamSeries MakeSeries(const RelayLabels& labels);
  void Remove(const StreamSeries& series);
  // Creates the series of all models of the snapshot, and drops those of forgotten ones.
  void FollowModels(const LoadSnapshot& snapshot);
  void CountEnd(const RelayLabels& labels, const absl::Status& status);
  TenantSeries& Tenant(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TenantSeries MakeTenant(const std::string& label);

  const Admission* const admission_;
  const LoadView* const view_;
  const Clock* const clock_;
  const size_t max_tenants_;
  std::vector<std::string> pool_names_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& migrations_;
  prometheus::Family<prometheus::Counter>& rejected_;
  prometheus::Family<prometheus::Counter>& tenant_tokens_;
  prometheus::Family<prometheus::Histogram>& request_;
  prometheus::Family<prometheus::Histogram>& queue_;
  prometheus::Family<prometheus::Histogram>& time_to_first_token_;
  prometheus::Family<prometheus::Histogram>& inter_token_;
  prometheus::Family<prometheus::Histogram>& migration_stall_;
  std::atomic<int64_t> unauthenticated_ = 0;
  const KeyLimiter* key_limiter_ = nullptr;
  std::function<int64_t()> dropped_spans_ = [] { return 0; };
  std::function<int64_t()> dropped_records_ = [] { return 0; };
  std::shared_ptr<prometheus::Collectable> load_;
  std::shared_ptr<prometheus::Collectable> gauges_;

  absl::Mutex mutex_;
  // Has the tenants with series of their own.
  std::map<std::string, TenantSeries> tenants_ ABSL_GUARDED_BY(mutex_);
  TenantSeries others_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_prune_ ABSL_GUARDED_BY(mutex_);  // when quiet tenants may be dropped again
  // Series are used under the lock, shared, since they may be dropped.
  std::map<std::string, ModelSeries, std::less<>> series_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway

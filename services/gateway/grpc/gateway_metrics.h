// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/base/clock.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// All metrics of the gateway, named continuo_gateway_…. Gauges of other objects (open streams,
// queues, workers) are read from them when Prometheus scrapes. Thread-safe.
class GatewayMetrics : public RelayObserver {
 public:
  // Everything passed, and this object, outlives the result of collectables().
  GatewayMetrics(const Admission* admission, const LoadView* view, const Clock* clock);

  void OnFirstToken(std::string_view model, absl::Duration since_start) override;
  void OnTokens(std::string_view model, absl::Duration since_last, int tokens) override;
  void OnMigration(std::string_view model, std::string_view reason) override;
  void OnStall(std::string_view model, absl::Duration stall) override;

  // A Generate call has ended, or was rejected. `model` is "" where none was found.
  void OnRequestEnd(std::string_view model, const absl::Status& status);
  void OnTenantTokens(const std::string& tenant, int64_t prompt, int64_t completion);
  // A call of any method, over gRPC or HTTP, came without a known key.
  void OnUnauthenticated() { unauthenticated_.fetch_add(1, std::memory_order_relaxed); }
  // Sets the source of the number of dropped spans. Called before the first scrape.
  void set_dropped_spans(std::function<int64_t()> dropped) { dropped_spans_ = std::move(dropped); }

  std::vector<std::shared_ptr<prometheus::Collectable>> collectables() const;

 private:
  // The histograms of one model, looked up once.
  struct ModelSeries {
    prometheus::Histogram* time_to_first_token;
    prometheus::Histogram* inter_token;
    prometheus::Histogram* migration_stall;
  };
  // The label of a model. A client must not create series, so a name that no worker has reported
  // is "unknown".
  std::string Known(std::string_view model) const;
  // Returns the model's series; creates them, at 0, the first time.
  ModelSeries Series(std::string_view model);

  const Admission* const admission_;
  const LoadView* const view_;
  const Clock* const clock_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& migrations_;
  prometheus::Family<prometheus::Counter>& rejected_;
  prometheus::Family<prometheus::Counter>& tenant_tokens_;
  prometheus::Family<prometheus::Histogram>& time_to_first_token_;
  prometheus::Family<prometheus::Histogram>& inter_token_;
  prometheus::Family<prometheus::Histogram>& migration_stall_;
  std::atomic<int64_t> unauthenticated_ = 0;
  std::function<int64_t()> dropped_spans_ = [] { return 0; };
  std::shared_ptr<prometheus::Collectable> gauges_;

  absl::Mutex mutex_;
  std::set<std::string> tenants_ ABSL_GUARDED_BY(mutex_);  // Those with series of their own.
  std::vector<std::pair<std::string, ModelSeries>> series_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What turns our own counters into Prometheus' format. A module counts in its own atomics and
// histograms; when Prometheus asks, a Collectable reads them. So every series is there, with 0,
// from the start.

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::common {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Each adds one series to the family of that name, which the first call makes. The values of a
// label have to be bounded in number. A name must not be used with two types.
void AddGauge(MetricFamilies& families, std::string_view name, std::string_view help,
              const MetricLabels& labels, double value);
void AddCounter(MetricFamilies& families, std::string_view name, std::string_view help,
                const MetricLabels& labels, double value);
// counts[i] observations are above bounds[i-1] and at most bounds[i] (not cumulative); the last of
// the bounds.size() + 1 counts is of what is above every bound.
void AddHistogram(MetricFamilies& families, std::string_view name, std::string_view help,
                  const MetricLabels& labels, std::span<const double> bounds,
                  std::span<const uint64_t> counts, double sum);
// Of anything with bounds(), count(i) and sum(), such as the engine's Histogram.
template <typename H>
requires requires(const H& h) { h.bounds(), h.count(size_t{0}), h.sum(); }
void AddHistogram(MetricFamilies& families, std::string_view name, std::string_view help,
                  const MetricLabels& labels, const H& histogram) {
  std::vector<uint64_t> counts(histogram.bounds().size() + 1);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = histogram.count(i);
  AddHistogram(families, name, help, labels, histogram.bounds(), counts, histogram.sum());
}

// What is asked of every process, by the names that Prometheus' own clients use: process_ and
// cpu_seconds_total, resident_memory_bytes, virtual_memory_bytes, open_fds, max_fds,
// start_time_seconds.
void AddProcessMetrics(MetricFamilies& families);

// A Collectable out of a function, which is called from the metrics server's threads.
std::shared_ptr<prometheus::Collectable> MakeCollectable(
    std::function<void(MetricFamilies&)> collect);

// All of what several collectables count, families of the same name joined, in Prometheus' text
// format.
std::string FormatMetrics(
    const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables);

// HTTP: GET /metrics (all collectables) and GET /healthz (200 "ok" or 503 "unhealthy"). Runs on a
// thread of its own, from which it calls the collectables. Thread-safe.
class MetricsServer {
 public:
  // `listen` is "host:port"; port 0 takes a free one. `healthy` is called on every /healthz,
  // unset always is healthy. UNAVAILABLE names the address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& listen, std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
      std::function<bool()> healthy = nullptr);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  struct Impl;
  MetricsServer();

  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace continuo::common

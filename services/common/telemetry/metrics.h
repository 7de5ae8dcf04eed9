// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exports metrics in Prometheus' format. A module counts in its own atomics and histograms, and a
// Collectable reads them when Prometheus scrapes. So every series exists, with 0, from the start.

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
#include "services/common/flags.h"

namespace continuo::common {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Each function adds one series to the family of that name, which the first call makes. The number
// of values of a label has to be bounded. A name must not be used with two types.
void AddGauge(MetricFamilies& families, std::string_view name, std::string_view help,
              const MetricLabels& labels, double value);
void AddCounter(MetricFamilies& families, std::string_view name, std::string_view help,
                const MetricLabels& labels, double value);
// counts[i] is the number of observations above bounds[i-1] and at most bounds[i] (not cumulative).
// There are bounds.size() + 1 counts; the last one counts observations above every bound.
void AddHistogram(MetricFamilies& families, std::string_view name, std::string_view help,
                  const MetricLabels& labels, std::span<const double> bounds,
                  std::span<const uint64_t> counts, double sum);
// Adds any type with bounds(), count(i) and sum(), such as the engine's Histogram.
template <typename H>
requires requires(const H& h) { h.bounds(), h.count(size_t{0}), h.sum(); }
void AddHistogram(MetricFamilies& families, std::string_view name, std::string_view help,
                  const MetricLabels& labels, const H& histogram) {
  std::vector<uint64_t> counts(histogram.bounds().size() + 1);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = histogram.count(i);
  AddHistogram(families, name, help, labels, histogram.bounds(), counts, histogram.sum());
}

// Adds the metrics of the process that Prometheus' own clients have: process_cpu_seconds_total,
// process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds, process_max_fds
// and process_start_time_seconds.
void AddProcessMetrics(MetricFamilies& families);

// Makes a Collectable of a function, which is called on the metrics server's threads.
std::shared_ptr<prometheus::Collectable> MakeCollectable(
    std::function<void(MetricFamilies&)> collect);

// Formats the metrics of several collectables in Prometheus' text format. Families of the same name
// are joined.
std::string FormatMetrics(
    const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables);

// The HTTP server of GET /metrics (all collectables) and GET /healthz (200 "ok" or 503
// "unhealthy"). It runs on its own thread, from which it calls the collectables. Thread-safe.
// The query and all headers but `authorization` are ignored.
class MetricsServer {
 public:
  // `listen` is "host:port"; port 0 takes a free one. `healthy` is called for every /healthz;
  // without it the server is always healthy. With `may_read`, /metrics is for requests with a token
  // that it takes, and 401 for others. UNAVAILABLE names the address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& listen, std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
      std::function<bool()> healthy = nullptr,
      std::function<bool(std::string_view token)> may_read = nullptr);
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

// Adds --metrics_listen and --metrics_token_file.
void AddMetricsFlags(Flags& flags, std::string* listen, std::string* token_file);

}  // namespace continuo::common

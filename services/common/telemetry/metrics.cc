// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/metrics.h"

#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/numbers.h"
#include "services/base/check.h"

namespace continuo::common {
namespace {

prometheus::MetricFamily& FamilyOf(MetricFamilies& families, std::string_view name,
                                   std::string_view help, prometheus::MetricType type) {
  for (prometheus::MetricFamily& family : families) {
    if (family.name == name) {
      CONTINUO_CHECK(family.type == type);
      return family;
    }
  }
  return families.emplace_back(
      prometheus::MetricFamily{std::string(name), std::string(help), type, {}});
}

prometheus::ClientMetric& AddSeries(prometheus::MetricFamily& family, const MetricLabels& labels) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

// The start time of this process in seconds since 1970; 0 where /proc does not have it. By proc(5),
// it is field 22 of stat, in clock ticks since the boot, whose time is in /proc/stat.
double ProcessStartTime() {
  std::ifstream own("/proc/self/stat");
  std::string text(std::istreambuf_iterator<char>(own), {});
  // The name, in parentheses, may contain spaces; the third field follows it.
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  std::ifstream system("/proc/stat");
  std::string key;
  double boot = 0;
  while (system >> key && key != "btime") {
  }
  system >> boot;
  double ticks = 0;
  if (!absl::SimpleAtod(field, &ticks) || boot == 0) return 0;
  return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

class FunctionCollectable : public prometheus::Collectable {
 public:
  explicit FunctionCollectable(std::function<void(MetricFamilies&)> collect)
      : collect_(std::move(collect)) {}
  MetricFamilies Collect() const override {
    MetricFamilies families;
    collect_(families);
    return families;
  }

 private:
  const std::function<void(MetricFamilies&)> collect_;
};

}  // namespace

void AddGauge(MetricFamilies& families, std::string_view name, std::string_view help,
              const MetricLabels& labels, double value) {
  AddSeries(FamilyOf(families, name, help, prometheus::MetricType::Gauge), labels).gauge.value =
      value;
}

void AddCounter(MetricFamilies& families, std::string_view name, std::string_view help,
                const MetricLabels& labels, double value) {
  AddSeries(FamilyOf(families, name, help, prometheus::MetricType::Counter), labels).counter.value =
      value;
}

void AddHistogram(MetricFamilies& families, std::string_view name, std::string_view help,
                  const MetricLabels& labels, std::span<const double> bounds,
                  std::span<const uint64_t> counts, double sum) {
  CONTINUO_CHECK(counts.size() == bounds.size() + 1);
  prometheus::ClientMetric::Histogram& histogram =
      AddSeries(FamilyOf(families, name, help, prometheus::MetricType::Histogram), labels)
          .histogram;
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({total, bound});
  }
  histogram.sample_count = total;
  histogram.sample_sum = sum;
}

void AddProcessMetrics(MetricFamilies& families) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  AddCounter(families, "process_cpu_seconds_total", "CPU time used, user and system.", {},
             Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  double virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  AddGauge(families, "process_virtual_memory_bytes", "Address space in use.", {},
           virtual_pages * page);
  AddGauge(families, "process_resident_memory_bytes", "Memory in use.", {}, resident_pages * page);
  std::error_code ignored;
  const auto fds = std::filesystem::directory_iterator("/proc/self/fd", ignored);
  // One of them is open for reading the folder.
  const auto num_fds = std::distance(begin(fds), end(fds));
  AddGauge(families, "process_open_fds", "File descriptors in use.", {},
           static_cast<double>(std::max<int64_t>(num_fds - 1, 0)));
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  AddGauge(families, "process_max_fds", "File descriptors allowed.", {},
           static_cast<double>(limit.rlim_cur));
  static const double start = ProcessStartTime();
  AddGauge(families, "process_start_time_seconds", "When the process began, since 1970.", {},
           start);
}

std::shared_ptr<prometheus::Collectable> MakeCollectable(
    std::function<void(MetricFamilies&)> collect) {
  return std::make_shared<FunctionCollectable>(std::move(collect));
}

std::string FormatMetrics(
    const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables) {
  MetricFamilies all;
  for (const auto& collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect()) {
      prometheus::MetricFamily& into = FamilyOf(all, family.name, family.help, family.type);
      into.metric.insert(into.metric.end(), family.metric.begin(), family.metric.end());
    }
  }
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace continuo::common

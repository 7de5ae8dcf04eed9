// SPDX-License-Identifier: Apache-2.0
#include "services/common/metrics.h"

#include <prometheus/text_serializer.h>

#include <limits>

#include "services/base/check.h"

namespace continuo {
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

}  // namespace continuo

// SPDX-License-Identifier: Apache-2.0
#include "services/common/metrics.h"

#include <CivetServer.h>
#include <prometheus/text_serializer.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo {
namespace {

// The family of that name, made if it is not there.
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

void Respond(mg_connection* connection, int code, const char* type, const std::string& body) {
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\n\r\n",
            code, mg_get_response_code_text(connection, code), type, body.size());
  mg_write(connection, body.data(), body.size());
}

class MetricsHandler : public CivetHandler {
 public:
  explicit MetricsHandler(std::vector<std::shared_ptr<prometheus::Collectable>> collectables)
      : collectables_(std::move(collectables)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    MetricFamilies all;
    for (const auto& collectable : collectables_) {
      for (prometheus::MetricFamily& family : collectable->Collect()) {
        prometheus::MetricFamily& into = FamilyOf(all, family.name, family.help, family.type);
        into.metric.insert(into.metric.end(), family.metric.begin(), family.metric.end());
      }
    }
    Respond(connection, 200, "text/plain; version=0.0.4; charset=utf-8",
            prometheus::TextSerializer().Serialize(all));
    return true;
  }

 private:
  const std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;
};

class HealthHandler : public CivetHandler {
 public:
  explicit HealthHandler(std::function<bool()> healthy) : healthy_(std::move(healthy)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const bool healthy = !healthy_ || healthy_();
    Respond(connection, healthy ? 200 : 503, "text/plain", healthy ? "ok\n" : "unhealthy\n");
    return true;
  }

 private:
  const std::function<bool()> healthy_;
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

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
    std::function<bool()> healthy) {
  std::unique_ptr<MetricsServer> result(new MetricsServer);
  try {
    result->server_ = std::make_unique<CivetServer>(std::vector<std::string>{
        "listening_ports", listen, "num_threads", "2", "request_timeout_ms", "10000"});
  } catch (const CivetException&) {
    return absl::UnavailableError(absl::StrCat("cannot listen on \"", listen, "\" for metrics"));
  }
  result->port_ = result->server_->getListeningPorts().at(0);
  auto& handlers = result->handlers_;
  handlers.push_back(std::make_unique<MetricsHandler>(std::move(collectables)));
  result->server_->addHandler("/metrics$", *handlers.back());
  handlers.push_back(std::make_unique<HealthHandler>(std::move(healthy)));
  result->server_->addHandler("/healthz$", *handlers.back());
  return result;
}

MetricsServer::~MetricsServer() = default;

}  // namespace continuo

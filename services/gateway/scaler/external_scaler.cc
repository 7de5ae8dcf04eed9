// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/external_scaler.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/refused_stream.h"
#include "services/gateway/scaler/activity.h"
#include "services/protocol/error.h"

namespace continuo::gateway {

absl::StatusOr<ExternalScaler::Trigger> ExternalScaler::Parse(
    const externalscaler::ScaledObjectRef& reference) const {
  Trigger trigger;
  const auto& metadata = reference.scalermetadata();
  if (const auto model = metadata.find("model"); model != metadata.end()) {
    trigger.model = model->second;
  }
  if (trigger.model.empty()) {
    return protocol::FieldError("scalerMetadata.model",
                                "is needed: the name of the model that the pool serves");
  }
  if (const auto tokens = metadata.find("queuedTokens");
      tokens != metadata.end() &&
      (!absl::SimpleAtoi(tokens->second, &trigger.queued_tokens) || trigger.queued_tokens <= 0)) {
    return protocol::FieldError("scalerMetadata.queuedTokens", "has to be an integer above 0");
  }
  if (!demand_->IsKnown(trigger.model)) {
    return absl::NotFoundError(
        absl::StrCat("scalerMetadata.model: a model of this name is neither declared nor served"));
  }
  return trigger;
}

grpc::ServerUnaryReactor* ExternalScaler::IsActive(grpc::CallbackServerContext* context,
                                                   const externalscaler::ScaledObjectRef* request,
                                                   externalscaler::IsActiveResponse* response) {
  const absl::StatusOr<Trigger> trigger = Parse(*request);
  if (!trigger.ok()) return common::EndUnary(context, trigger.status());
  response->set_result(demand_->Total(trigger->model).open_requests > 0);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerWriteReactor<externalscaler::IsActiveResponse>* ExternalScaler::StreamIsActive(
    grpc::CallbackServerContext* /*context*/, const externalscaler::ScaledObjectRef* request) {
  const absl::StatusOr<Trigger> trigger = Parse(*request);
  if (!trigger.ok())
    return new common::RefusedStream<externalscaler::IsActiveResponse>(trigger.status());
  using Stream = PolledStream<externalscaler::IsActiveResponse>;
  return Stream::Start(
      &streams_, timer_,
      [this, model = trigger->model,
       activity = Activity()]() mutable -> std::optional<externalscaler::IsActiveResponse> {
        const std::optional<bool> next = activity.Next(demand_->Total(model).open_requests > 0,
                                                       demand_->IsServed(model), clock_->Elapsed());
        if (!next.has_value()) return std::nullopt;
        externalscaler::IsActiveResponse response;
        response.set_result(*next);
        return response;
      });
}

grpc::ServerUnaryReactor* ExternalScaler::GetMetricSpec(
    grpc::CallbackServerContext* context, const externalscaler::ScaledObjectRef* request,
    externalscaler::GetMetricSpecResponse* response) {
  const absl::StatusOr<Trigger> trigger = Parse(*request);
  if (!trigger.ok()) return common::EndUnary(context, trigger.status());
  externalscaler::MetricSpec& spec = *response->add_metricspecs();
  spec.set_metricname(kMetric);
  spec.set_targetsize(trigger->queued_tokens);
  spec.set_targetsizefloat(static_cast<double>(trigger->queued_tokens));
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ExternalScaler::GetMetrics(
    grpc::CallbackServerContext* context, const externalscaler::GetMetricsRequest* request,
    externalscaler::GetMetricsResponse* response) {
  const absl::StatusOr<Trigger> trigger = Parse(request->scaledobjectref());
  if (!trigger.ok()) return common::EndUnary(context, trigger.status());
  if (request->metricname() != kMetric) {
    return common::EndUnary(
        context, protocol::FieldError("metricName", absl::StrCat("has to be ", kMetric)));
  }
  const int64_t tokens = demand_->Total(trigger->model).queued_tokens;
  externalscaler::MetricValue& value = *response->add_metricvalues();
  value.set_metricname(kMetric);
  value.set_metricvalue(tokens);
  value.set_metricvaluefloat(static_cast<double>(tokens));
  return common::EndUnary(context, absl::OkStatus());
}

}  // namespace continuo::gateway

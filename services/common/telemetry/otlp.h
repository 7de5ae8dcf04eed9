// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exporters of spans and of log records share this: the collector, its flags, and attributes.

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "opentelemetry/proto/common/v1/common.pb.h"
#include "opentelemetry/proto/resource/v1/resource.pb.h"
#include "services/common/flags.h"
#include "services/common/tls.h"

namespace continuo::common {

// Texts are cut to 256 bytes and made valid UTF-8.
using OtlpValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
using OtlpAttributes = std::vector<std::pair<std::string, OtlpValue>>;

// The collector.
struct OtlpTarget {
  std::string endpoint;  // "host:port"; "" exports nothing.
  // Without files all is sent in the clear, as to a collector in the same pod.
  TlsFiles tls = {.flag_prefix = "otlp_tls"};
  // The share of the traces that begin here that are recorded. A call that comes with a trace is
  // recorded if that is.
  double sample_ratio = 1;
};
// Adds --otlp_endpoint, --otlp_tls_ca_file, --otlp_tls_cert_file, --otlp_tls_key_file and
// --trace_sample_ratio.
void AddOtlpFlags(Flags& flags, OtlpTarget* target);

// The sender: the attributes service.name and service.instance.id.
struct OtlpSource {
  std::string service, instance;
};
void SetResource(const OtlpSource& source, opentelemetry::proto::resource::v1::Resource* to);

void SetValue(const OtlpValue& value, opentelemetry::proto::common::v1::AnyValue* to);

template <typename Message>
void SetAttributes(const OtlpAttributes& attributes, Message* to) {
  for (const auto& [key, value] : attributes) {
    opentelemetry::proto::common::v1::KeyValue* const attribute = to->add_attributes();
    attribute->set_key(key);
    SetValue(value, attribute->mutable_value());
  }
}

// Returns a channel to the collector, which tries to connect again at least every five seconds.
std::shared_ptr<grpc::Channel> OtlpChannel(const std::string& endpoint, ReloadedTls* tls);

// Returns whether a batch that ended with this status may be sent again
// (https://opentelemetry.io/docs/specs/otlp, "Failures").
bool IsRetryable(const grpc::Status& status);

}  // namespace continuo::common

// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/otlp.h"

#include <grpcpp/create_channel.h>

#include <string_view>

#include "services/base/utf8.h"
#include "services/common/version.h"

namespace continuo::common {
namespace {

namespace otlp = opentelemetry::proto;

constexpr size_t kMaxTextBytes = 256;

struct ValueSetter {
  otlp::common::v1::AnyValue* to;

  void operator()(const std::string& value) const {
    to->set_string_value(ToValidUtf8(std::string_view(value).substr(0, kMaxTextBytes)));
  }
  void operator()(int64_t value) const { to->set_int_value(value); }
  void operator()(double value) const { to->set_double_value(value); }
  void operator()(bool value) const { to->set_bool_value(value); }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) {
      ValueSetter{to->mutable_array_value()->add_values()}(value);
    }
  }
};

}  // namespace

void AddOtlpFlags(Flags& flags, OtlpTarget* target) {
  flags.OptionalAddress("otlp_endpoint", &target->endpoint,
                        "Address of the collector of OpenTelemetry spans (OTLP over gRPC). Empty "
                        "exports no spans.");
  flags.Text("otlp_tls_ca_file", &target->tls.ca_file,
             "PEM CA that has to have issued the collector's certificate. Spans are sent in the "
             "clear where no otlp_tls file is set.");
  flags.Text("otlp_tls_cert_file", &target->tls.cert_file,
             "PEM certificate that the collector is shown.");
  flags.Text("otlp_tls_key_file", &target->tls.key_file, "PEM key of --otlp_tls_cert_file.");
  flags.Number(
      "trace_sample_ratio", &target->sample_ratio, 0, 1,
      "Share of the requests without a traceparent that are traced. One with a traceparent "
      "is traced as that says.");
}

void SetResource(const OtlpSource& source, otlp::resource::v1::Resource* to) {
  const auto describe = [&](const char* key, std::string_view value) {
    otlp::common::v1::KeyValue* const attribute = to->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(std::string(value));
  };
  describe("service.name", source.service);
  describe("service.instance.id", source.instance);
  describe("service.version", Version());
}

void SetValue(const OtlpValue& value, otlp::common::v1::AnyValue* to) {
  std::visit(ValueSetter{to}, value);
}

std::shared_ptr<grpc::Channel> OtlpChannel(const std::string& endpoint, ReloadedTls* tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  return grpc::CreateCustomChannel(endpoint, tls->ForChannel(), arguments);
}

bool IsRetryable(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

}  // namespace continuo::common

// SPDX-License-Identifier: Apache-2.0
// Routes the log lines of gRPC and Protocol Buffers through Log. gRPC up to 1.64 and Protocol
// Buffers up to 3.21 have their own log functions; later versions use Abseil's log.
#include <grpcpp/version_info.h>

#include <mutex>
#include <string>
#include <string_view>

#include "services/common/log.h"

#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 65
#define CONTINUO_GRPC_LOGS_WITH_ABSEIL 1
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#else
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#endif

namespace continuo::common {
namespace {

void Write(LogSeverity severity, std::string_view message, std::string_view file, int line) {
  const size_t slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  const std::string source = std::string(file) + ":" + std::to_string(line);
  Log(severity, message, {{"source", source}});
}

#ifdef CONTINUO_GRPC_LOGS_WITH_ABSEIL
class Sink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override {
    if (entry.log_severity() < LogSeverity::kWarning) return;
    Write(entry.log_severity(), entry.text_message(), entry.source_filename(), entry.source_line());
  }
};

void Install() {
  static Sink* const sink = new Sink;  // Never deleted: log lines may come until the end.
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
  absl::InitializeLog();
  absl::AddLogSink(sink);
}
#else
void Receive(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_DEBUG) return;
  Write(args->severity == GPR_LOG_SEVERITY_ERROR ? LogSeverity::kError : LogSeverity::kInfo,
        args->message, args->file, args->line);
}

void ReceiveProtobuf(google::protobuf::LogLevel level, const char* file, int line,
                     const std::string& message) {
  const bool severe = level >= google::protobuf::LOGLEVEL_ERROR;
  Write(severe ? LogSeverity::kWarning : LogSeverity::kInfo, message, file, line);
}

void Install() {
  gpr_log_verbosity_init();  // Reads GRPC_VERBOSITY; the default is errors.
  gpr_set_log_function(Receive);
  google::protobuf::SetLogHandler(ReceiveProtobuf);
}
#endif

}  // namespace

void InstallGrpcLogSink() {
  static std::once_flag once;
  std::call_once(once, Install);
}

}  // namespace continuo::common

// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/log_exporter.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_server.h"

namespace continuo::common {
namespace {

namespace otlp = opentelemetry::proto;

// Answers with the statuses one after the other, then with OK.
class LogCollector : public otlp::collector::logs::v1::LogsService::Service {
 public:
  explicit LogCollector(std::vector<grpc::StatusCode> statuses = {})
      : statuses_(std::move(statuses)) {
    server_ = *GrpcServer::Start({.listen = "127.0.0.1:0"}, {this});
  }
  ~LogCollector() override { server_ = nullptr; }
  std::string address() const { return server_->address(); }

  grpc::Status Export(grpc::ServerContext*,
                      const otlp::collector::logs::v1::ExportLogsServiceRequest* request,
                      otlp::collector::logs::v1::ExportLogsServiceResponse* response) override {
    absl::MutexLock lock(&mutex_);
    const size_t call = num_calls_++;
    if (call < statuses_.size()) return grpc::Status(statuses_[call], "not now");
    requests_.push_back(*request);
    response->mutable_partial_success()->set_rejected_log_records(rejected_);
    return grpc::Status::OK;
  }
  void Reject(int64_t number) {
    absl::MutexLock lock(&mutex_);
    rejected_ = number;
  }
  void WaitForCalls(size_t number) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_calls_ >= number; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1)));
  }
  // Waits for `number` records and returns all so far.
  std::vector<otlp::logs::v1::LogRecord> WaitForRecords(size_t number) {
    absl::MutexLock lock(&mutex_);
    std::vector<otlp::logs::v1::LogRecord> records;
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      records.clear();
      for (const auto& request : requests_) {
        const auto& sent = request.resource_logs(0).scope_logs(0).log_records();
        records.insert(records.end(), sent.begin(), sent.end());
      }
      return records.size() >= number;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1)));
    return records;
  }
  otlp::collector::logs::v1::ExportLogsServiceRequest request(size_t i) {
    absl::MutexLock lock(&mutex_);
    return requests_.at(i);
  }

 private:
  const std::vector<grpc::StatusCode> statuses_;
  absl::Mutex mutex_;
  size_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<otlp::collector::logs::v1::ExportLogsServiceRequest> requests_
      ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> server_;
};

std::unique_ptr<LogExporter> Open(const std::string& address, BatchOptions batch) {
  auto exporter = LogExporter::Open("records", {.target = {.endpoint = address},
                                                .source = {.service = "s", .instance = "i"},
                                                .batch = batch});
  EXPECT_TRUE(exporter.ok()) << exporter.status();
  return *std::move(exporter);
}

constexpr BatchOptions kQuick = {.max_wait = absl::Milliseconds(1),
                                 .min_backoff = absl::Milliseconds(1)};

TEST(LogExporterTest, ARecordReachesTheCollector) {
  LogCollector collector;
  const auto exporter = Open(collector.address(), kQuick);
  exporter->Add({.event = "continuo.usage",
                 .time = absl::UnixEpoch() + absl::Seconds(7),
                 .attributes = {{"tenant", std::string("t")},
                                {"tokens", int64_t{5}},
                                {"seconds", 1.5},
                                {"again", true}}});
  const auto records = collector.WaitForRecords(1);
  const otlp::logs::v1::LogRecord& record = records[0];
  EXPECT_EQ(record.event_name(), "continuo.usage");
  EXPECT_EQ(record.body().string_value(), "continuo.usage");
  EXPECT_EQ(record.time_unix_nano(), 7'000'000'000u);
  EXPECT_EQ(record.severity_number(), otlp::logs::v1::SEVERITY_NUMBER_INFO);
  ASSERT_EQ(record.attributes_size(), 4);
  EXPECT_EQ(record.attributes(0).value().string_value(), "t");
  EXPECT_EQ(record.attributes(1).value().int_value(), 5);
  EXPECT_EQ(record.attributes(2).value().double_value(), 1.5);
  EXPECT_TRUE(record.attributes(3).value().bool_value());
  const auto resource = collector.request(0).resource_logs(0).resource();
  EXPECT_EQ(resource.attributes(0).value().string_value(), "s");
}

TEST(LogExporterTest, ACollectorThatIsBusyOrGoneForAWhileLosesNothing) {
  LogCollector collector({grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED,
                          grpc::StatusCode::DEADLINE_EXCEEDED});
  const auto exporter = Open(collector.address(), kQuick);
  for (int i = 0; i < 5; ++i) {
    exporter->Add({.event = absl::StrCat(i)});
    collector.WaitForCalls(std::min<size_t>(static_cast<size_t>(i) + 1, 3));
  }
  const auto records = collector.WaitForRecords(5);
  ASSERT_EQ(records.size(), 5u) << "each record once";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(records[static_cast<size_t>(i)].event_name(), absl::StrCat(i));
  }
  EXPECT_EQ(exporter->num_dropped(), 0);
}

TEST(LogExporterTest, WhatACollectorRefusesForGoodIsCounted) {
  LogCollector collector({grpc::StatusCode::INVALID_ARGUMENT});
  const auto exporter = Open(collector.address(), kQuick);
  exporter->Add({.event = "refused"});
  collector.WaitForCalls(1);
  exporter->Add({.event = "taken"});
  EXPECT_EQ(collector.WaitForRecords(1)[0].event_name(), "taken");
  EXPECT_EQ(exporter->num_dropped(), 1);
  collector.Reject(std::numeric_limits<int64_t>::max());
  exporter->Add({.event = "rejected"});
  collector.WaitForRecords(2);
  exporter->Stop();
  EXPECT_EQ(exporter->num_dropped(), 2);
}

TEST(LogExporterTest, BeyondTheQueueRecordsAreCounted) {
  const auto exporter = Open(
      "unix:/nowhere",
      {.max_queued = 3, .max_batch = 1, .max_wait = absl::Hours(1), .min_backoff = absl::Hours(1)});
  for (int i = 0; i < 10; ++i) exporter->Add({.event = "e"});
  EXPECT_GE(exporter->num_dropped(), 10 - 3 - 1);
  exporter->Stop();
  EXPECT_EQ(exporter->num_dropped(), 10);
}

TEST(LogExporterTest, WhatWaitsIsSentAtTheEnd) {
  LogCollector collector;
  Open(collector.address(), {.max_wait = absl::Hours(1)})->Add({.event = "last"});
  EXPECT_EQ(collector.WaitForRecords(1)[0].event_name(), "last");
}

TEST(LogExporterTest, AnEndWhileABatchIsToBeSentAgainSendsItOnceMore) {
  LogCollector collector({grpc::StatusCode::UNAVAILABLE});
  const auto exporter = Open(collector.address(), {.max_wait = absl::Milliseconds(1),
                                                   .min_backoff = absl::Hours(1),
                                                   .max_backoff = absl::Hours(1)});
  exporter->Add({.event = "first"});
  collector.WaitForCalls(1);
  exporter->Add({.event = "second"});
  exporter->Stop();
  EXPECT_EQ(collector.WaitForRecords(2).size(), 2u);
  EXPECT_EQ(exporter->num_dropped(), 0);
}

}  // namespace
}  // namespace continuo::common

// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/telemetry/call_trace.h"

namespace continuo::common {
namespace {

namespace otlp = opentelemetry::proto;

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, AHeaderIsReadAndWritten) {
  const auto context = ParseTraceparent(kParent);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id[0], 0x4b);
  EXPECT_EQ(context->span_id[7], 0xb7);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(context->ToHeader(), kParent);
  std::string not_sampled = kParent;
  not_sampled.back() = '0';
  EXPECT_FALSE(ParseTraceparent(not_sampled)->sampled());
  // Fields that a later version adds are ignored.
  EXPECT_EQ(ParseTraceparent("cc" + std::string(kParent).substr(2) + "-more")->ToHeader(), kParent);
}

TEST(TraceContextTest, WhatIsNoHeaderIsNone) {
  const std::string good = kParent;
  std::vector<std::string> bad = {"",
                                  "00",
                                  good.substr(1),
                                  good + "-more",
                                  good + "0",
                                  "ff" + good.substr(2),
                                  "00-" + std::string(32, '0') + good.substr(35),
                                  good.substr(0, 36) + std::string(16, '0') + "-01"};
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'G', 'A', ' ', '\0', '\xff'}) {
      bad.push_back(good);
      bad.back()[i] = c;
    }
  }
  for (const std::string& header : bad) EXPECT_FALSE(ParseTraceparent(header)) << header;
}

TEST(TraceContextTest, AChildIsOfItsParentsTraceAndARootOfItsOwn) {
  std::mt19937_64 random(7);
  const auto parent = ParseTraceparent(kParent);
  const TraceContext child = MakeSpanContext(parent, random);
  EXPECT_EQ(child.trace_id, parent->trace_id);
  EXPECT_NE(child.span_id, parent->span_id);
  const TraceContext root = MakeSpanContext(std::nullopt, random);
  EXPECT_TRUE(root.sampled());
  EXPECT_TRUE(ParseTraceparent(root.ToHeader()).has_value());
  EXPECT_NE(root.trace_id, child.trace_id);
}

// A fake collector; `answer` may block.
class Collector : public otlp::collector::trace::v1::TraceService::Service {
 public:
  Collector() { server_ = *GrpcServer::Start({.listen = "127.0.0.1:0"}, {this}); }
  ~Collector() override { server_ = nullptr; }
  std::string address() const { return server_->address(); }

  grpc::Status Export(grpc::ServerContext* context,
                      const otlp::collector::trace::v1::ExportTraceServiceRequest* request,
                      otlp::collector::trace::v1::ExportTraceServiceResponse* response) override {
    absl::MutexLock lock(&mutex_);
    response->mutable_partial_success()->set_rejected_spans(rejected_);
    requests_.push_back(*request);
    if (!blocked_) return grpc::Status::OK;
    const auto never = [] { return false; };
    while (!context->IsCancelled()) {
      mutex_.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(1));
    }
    return grpc::Status::CANCELLED;
  }
  void Reject(int64_t number) {
    absl::MutexLock lock(&mutex_);
    rejected_ = number;
  }
  void Block() {
    absl::MutexLock lock(&mutex_);
    blocked_ = true;
  }
  // Waits for `number` spans and returns all so far.
  std::vector<otlp::trace::v1::Span> WaitForSpans(size_t number) {
    absl::MutexLock lock(&mutex_);
    std::vector<otlp::trace::v1::Span> spans;
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      spans.clear();
      for (const auto& request : requests_) {
        for (const auto& span : request.resource_spans(0).scope_spans(0).spans()) {
          spans.push_back(span);
        }
      }
      return spans.size() >= number;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1)));
    return spans;
  }
  otlp::collector::trace::v1::ExportTraceServiceRequest request(size_t i) {
    absl::MutexLock lock(&mutex_);
    return requests_.at(i);
  }

 private:
  absl::Mutex mutex_;
  std::vector<otlp::collector::trace::v1::ExportTraceServiceRequest> requests_
      ABSL_GUARDED_BY(mutex_);
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<GrpcServer> server_;
};

std::unique_ptr<SpanExporter> Open(SpanExporterOptions options) {
  auto exporter = SpanExporter::Open(std::move(options));
  EXPECT_TRUE(exporter.ok()) << exporter.status();
  return *std::move(exporter);
}

TEST(SpanExporterTest, ACallsSpanReachesTheCollector) {
  Collector collector;
  const SystemClock clock;
  const std::unique_ptr<SpanExporter> exporter =
      Open({.target = {.endpoint = collector.address()},
            .source = {.service = "service", .instance = "pod"},
            .batch = {.max_wait = absl::Milliseconds(1)}});
  CallTrace trace(exporter.get(), kParent, &clock);
  ASSERT_TRUE(trace.recorded());
  const auto own = ParseTraceparent(trace.Traceparent());
  trace.Set("model", "llama");
  trace.Set("tokens", int64_t{7});
  trace.Set("queue_seconds", absl::Milliseconds(1500));
  trace.Set("name", std::string(255, 'a') + "\xe2\x82\xac");
  trace.Set("reasons", std::vector<std::string>{"stop", "length"});
  trace.AddEvent("migration", absl::Milliseconds(2), {{"worker", "w"}});
  trace.End("worker.generate", absl::AbortedError("text that stays here"));
  const auto spans = collector.WaitForSpans(1);
  const otlp::trace::v1::Span& span = spans[0];
  EXPECT_EQ(span.name(), "worker.generate");
  EXPECT_EQ(span.trace_id(),
            std::string("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36"));
  EXPECT_EQ(span.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_EQ(span.span_id(), std::string(own->span_id.begin(), own->span_id.end()));
  EXPECT_GT(span.start_time_unix_nano(), 0u);
  EXPECT_GE(span.end_time_unix_nano(), span.start_time_unix_nano());
  EXPECT_EQ(span.status().code(), otlp::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(span.status().message(), "ABORTED");
  ASSERT_EQ(span.attributes_size(), 5);
  EXPECT_EQ(span.attributes(0).value().string_value(), "llama");
  EXPECT_EQ(span.attributes(1).value().int_value(), 7);
  EXPECT_EQ(span.attributes(2).value().double_value(), 1.5);
  EXPECT_EQ(span.attributes(3).value().string_value(), std::string(255, 'a') + "\xef\xbf\xbd");
  ASSERT_EQ(span.attributes(4).value().array_value().values_size(), 2);
  EXPECT_EQ(span.attributes(4).value().array_value().values(1).string_value(), "length");
  ASSERT_EQ(span.events_size(), 1);
  EXPECT_EQ(span.events(0).name(), "migration");
  EXPECT_EQ(span.events(0).time_unix_nano(), span.start_time_unix_nano() + 2'000'000);
  EXPECT_EQ(span.events(0).attributes(0).value().string_value(), "w");
  const auto resource = collector.request(0).resource_spans(0).resource();
  EXPECT_EQ(resource.attributes(0).key(), "service.name");
  EXPECT_EQ(resource.attributes(0).value().string_value(), "service");
}

TEST(SpanExporterTest, WhatTheSenderDoesNotSampleIsNotRecorded) {
  const SystemClock clock;
  const std::unique_ptr<SpanExporter> exporter = Open({.target = {.endpoint = "127.0.0.1:1"}});
  std::string header = kParent;
  header.back() = '0';
  EXPECT_FALSE(CallTrace(exporter.get(), header, &clock).recorded());
  EXPECT_FALSE(CallTrace(nullptr, kParent, &clock).recorded());
  EXPECT_TRUE(CallTrace(exporter.get(), "", &clock).recorded());
  EXPECT_TRUE(CallTrace(exporter.get(), "nonsense", &clock).recorded());
}

TEST(SpanExporterTest, ATraceThatBeginsHereIsSampledByTheRatio) {
  const SystemClock clock;
  const std::unique_ptr<SpanExporter> none =
      Open({.target = {.endpoint = "127.0.0.1:1", .sample_ratio = 0}});
  const CallTrace left_out(none.get(), "", &clock);
  EXPECT_FALSE(left_out.recorded());
  // A program that is called on its behalf does not record it either, and logs its id.
  ASSERT_TRUE(left_out.has_context());
  EXPECT_TRUE(left_out.Traceparent().ends_with("-00")) << left_out.Traceparent();
  EXPECT_EQ(left_out.TraceId(), left_out.Traceparent().substr(3, 32));
  // A caller's trace goes on.
  EXPECT_TRUE(CallTrace(none.get(), kParent, &clock).recorded());

  const std::unique_ptr<SpanExporter> half =
      Open({.target = {.endpoint = "127.0.0.1:1", .sample_ratio = 0.5}});
  int recorded = 0;
  for (int i = 0; i < 1000; ++i) recorded += CallTrace(half.get(), "", &clock).recorded();
  // The expectation is 500, sigma 16.
  EXPECT_GT(recorded, 400);
  EXPECT_LT(recorded, 600);
}

TEST(SpanExporterTest, TheIdOfATraceIsKnownWithoutASpan) {
  const SystemClock clock;
  const std::string id = std::string(kParent).substr(3, 32);
  EXPECT_EQ(CallTrace(nullptr, kParent, &clock).TraceId(), id);
  EXPECT_EQ(CallTrace(nullptr, "", &clock).TraceId(), "");
  const std::unique_ptr<SpanExporter> exporter = Open({.target = {.endpoint = "127.0.0.1:1"}});
  EXPECT_EQ(CallTrace(exporter.get(), kParent, &clock).TraceId(), id);
}

TEST(SpanExporterTest, ACollectorThatHangsCostsSpansAndNoTime) {
  Collector collector;
  collector.Block();
  const std::unique_ptr<SpanExporter> exporter = Open({.target = {.endpoint = collector.address()},
                                                       .batch = {.max_queued = 10,
                                                                 .max_batch = 4,
                                                                 .max_wait = absl::Milliseconds(1),
                                                                 .timeout = absl::Hours(1)}});
  exporter->Add({.name = "one"});
  collector.WaitForSpans(1);  // It is being sent now, and the call blocks.
  for (int i = 0; i < 25; ++i) exporter->Add({.name = absl::StrCat("more ", i)});
  EXPECT_EQ(exporter->num_dropped(), 15);
}

TEST(SpanExporterTest, WhatACollectorSaysOfItsRefusalsIsBounded) {
  for (const int64_t said : {std::numeric_limits<int64_t>::max(), int64_t{-5}, int64_t{1}}) {
    Collector collector;
    collector.Reject(said);
    int64_t dropped = -1;
    {
      const std::unique_ptr<SpanExporter> exporter =
          Open({.target = {.endpoint = collector.address()},
                .batch = {.max_wait = absl::Milliseconds(1)}});
      exporter->Add({.name = "one"});
      collector.WaitForSpans(1);
      collector.Reject(0);
      exporter->Add({.name = "two"});  // It is sent after the first answer was read.
      collector.WaitForSpans(2);
      dropped = exporter->num_dropped();
    }
    EXPECT_EQ(dropped, said < 0 ? 0 : 1) << said;
  }
}

TEST(SpanExporterTest, WhatWaitsIsSentAtTheEnd) {
  Collector collector;
  {
    const std::unique_ptr<SpanExporter> exporter =
        Open({.target = {.endpoint = collector.address()}, .batch = {.max_wait = absl::Hours(1)}});
    exporter->Add({.name = "last"});
  }
  EXPECT_EQ(collector.WaitForSpans(1)[0].name(), "last");
}

TEST(SpanExporterTest, WithoutACollectorSpansAreCountedAsDropped) {
  const std::unique_ptr<SpanExporter> exporter =
      Open({.target = {.endpoint = "unix:/nowhere"},
            .batch = {.max_wait = absl::Milliseconds(1), .timeout = absl::Seconds(1)}});
  exporter->Add({.name = "lost"});
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (exporter->num_dropped() == 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(exporter->num_dropped(), 1);
}

}  // namespace
}  // namespace continuo::common

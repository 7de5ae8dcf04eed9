// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>

namespace continuo::common {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the whole answer to a request, with its head. `head` has lines of the request's.
std::string Get(int port, const std::string& path, const std::string& head = "",
                const std::string& method = "GET") {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + "\r\n";
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
  close(fd);
  return answer;
}

// A type with the members that AddHistogram needs.
struct CountedHistogram {
  std::array<double, 2> bounds_ = {0.5, 1};
  std::array<uint64_t, 3> counts = {1, 2, 3};
  std::span<const double> bounds() const { return bounds_; }
  uint64_t count(size_t i) const { return counts[i]; }
  double sum() const { return 7.25; }
};

TEST(MetricsTest, SeriesOfOneNameShareAFamily) {
  MetricFamilies families;
  AddCounter(families, "requests_total", "Requests", {{"code", "OK"}}, 3);
  AddCounter(families, "requests_total", "Requests", {{"code", "ABORTED"}}, 0);
  AddGauge(families, "running", "Running", {}, 1);
  ASSERT_EQ(families.size(), 2);
  ASSERT_EQ(families[0].metric.size(), 2);
  EXPECT_EQ(families[0].metric[0].counter.value, 3);
  EXPECT_EQ(families[1].metric[0].gauge.value, 1);
}

TEST(MetricsTest, HistogramBucketsAreCumulative) {
  MetricFamilies families;
  AddHistogram(families, "seconds", "Seconds", {{"model", "m"}}, CountedHistogram());
  const auto& histogram = families.at(0).metric.at(0).histogram;
  ASSERT_EQ(histogram.bucket.size(), 3);
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 1);
  EXPECT_EQ(histogram.bucket[1].cumulative_count, 3);
  EXPECT_EQ(histogram.bucket[2].cumulative_count, 6);
  EXPECT_EQ(histogram.sample_count, 6);
  EXPECT_EQ(histogram.sample_sum, 7.25);
}

TEST(MetricsServerTest, ServesWhatIsCountedAtThatMoment) {
  std::atomic<int> running = 0;
  auto server = MetricsServer::Start(
      "127.0.0.1:0", {MakeCollectable([&](MetricFamilies& families) {
        AddGauge(families, "continuo_running_requests", "Running", {{"model", "a\"b"}}, running);
      })});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/plain; version=0.0.4"),
                    HasSubstr("# TYPE continuo_running_requests gauge"),
                    HasSubstr("continuo_running_requests{model=\"a\\\"b\"} 0")));
  running = 5;
  EXPECT_THAT(Get((*server)->port(), "/metrics"), HasSubstr("model=\"a\\\"b\"} 5"));
}

double ProcessMetric(const std::string& name) {
  MetricFamilies families;
  AddProcessMetrics(families);
  for (const auto& family : families) {
    if (family.name == name) return family.metric[0].gauge.value + family.metric[0].counter.value;
  }
  return -1;
}

TEST(MetricsTest, AProcessTellsWhatItUses) {
  EXPECT_GT(ProcessMetric("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(ProcessMetric("process_virtual_memory_bytes"),
            ProcessMetric("process_resident_memory_bytes"));
  EXPECT_GT(ProcessMetric("process_max_fds"), ProcessMetric("process_open_fds"));
  EXPECT_GE(ProcessMetric("process_cpu_seconds_total"), 0);
  const double before = ProcessMetric("process_open_fds");
  const int fd = dup(0);
  EXPECT_EQ(ProcessMetric("process_open_fds"), before + 1);
  close(fd);
}

TEST(MetricsTest, AProcessTellsWhenItBegan) {
  // The time is after the machine's first process and before this moment (up to a second of ticks).
  const double start = ProcessMetric("process_start_time_seconds");
  EXPECT_GT(start, 1e9);
  EXPECT_LE(start, static_cast<double>(time(nullptr)) + 1);
}

TEST(MetricsServerTest, JoinsFamiliesOfSeveralCollectables) {
  const auto counter = [](const char* code) {
    return MakeCollectable([=](MetricFamilies& families) {
      AddCounter(families, "requests_total", "Requests", {{"code", code}}, 1);
    });
  };
  auto server = MetricsServer::Start("127.0.0.1:0", {counter("OK"), counter("ABORTED")});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string page = Get((*server)->port(), "/metrics");
  EXPECT_THAT(page, AllOf(HasSubstr("code=\"OK\""), HasSubstr("code=\"ABORTED\"")));
  EXPECT_EQ(page.find("# TYPE"), page.rfind("# TYPE"));
}

TEST(MetricsServerTest, HealthFollowsTheFunction) {
  std::atomic<bool> healthy = true;
  auto server = MetricsServer::Start("127.0.0.1:0", {}, [&] { return healthy.load(); });
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/healthz"), StartsWith("HTTP/1.1 200"));
  healthy = false;
  EXPECT_THAT(Get((*server)->port(), "/healthz"), StartsWith("HTTP/1.1 503"));
}

TEST(MetricsServerTest, AReaderNeedsATokenWhereTokensAreAskedFor) {
  auto server = MetricsServer::Start("127.0.0.1:0", {}, nullptr,
                                     [](std::string_view token) { return token == "one of them"; });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto get = [&](const std::string& head) {
    return Get((*server)->port(), "/metrics", head);
  };
  for (const char* good :
       {"Authorization: Bearer one of them\r\n", "authorization:bearer one of them \r\n"}) {
    EXPECT_THAT(get(good), StartsWith("HTTP/1.1 200")) << good;
  }
  for (const char* bad : {"", "Authorization: Bearer\r\n", "Authorization: Bearer one\r\n",
                          "Authorization: Basic one of them\r\n", "Authorization: one of them\r\n",
                          "X-Authorization: Bearer one of them\r\n"}) {
    EXPECT_THAT(get(bad), AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer"),
                                HasSubstr("a token is needed")))
        << bad;
  }
  EXPECT_THAT(Get((*server)->port(), "/metrics?x=1"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Get((*server)->port(), "/metrics", "", "HEAD"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Get((*server)->port(), "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(MetricsServerTest, OtherPathsAreNotFound) {
  auto server = MetricsServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get((*server)->port(), "/metrics/x"), Not(StartsWith("HTTP/1.1 200")));
}

TEST(MetricsServerTest, APortInUseIsAnErrorThatNamesIt) {
  auto first = MetricsServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string listen = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = MetricsServer::Start(listen, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(listen));
}

}  // namespace
}  // namespace continuo::common

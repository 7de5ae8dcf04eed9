// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/steps_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/openai/server_fixture.h"
#include "tests/gateway/openai/steps/steps.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A feed of a test's own steps. Thread-safe.
class FakeStepFeed : public StepFeed {
 public:
  Cancel Watch(const std::string& address, std::shared_ptr<Watcher> watcher) override {
    absl::MutexLock lock(&mutex_);
    addresses_.push_back(address);
    const auto place = watchers_.insert(watchers_.end(), watcher);
    if (opens_) watcher->OnOpen();
    return [this, place, ended = false]() mutable {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(ended, true)) return;
      (*place)->OnEnd(absl::CancelledError("cancelled"));
      watchers_.erase(place);
    };
  }
  // Watches are not taken from now on until they are told to be.
  void HoldOpen() {
    absl::MutexLock lock(&mutex_);
    opens_ = false;
  }
  void Push(const v1::WatchStepsResponse& response) {
    absl::MutexLock lock(&mutex_);
    for (const auto& watcher : watchers_) watcher->OnSteps(response);
  }
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    for (const auto& watcher : watchers_) watcher->OnEnd(status);
  }
  // Waits until so many watch, for at most a minute.
  bool WaitForWatchers(size_t number) {
    absl::MutexLock lock(&mutex_);
    const auto is_so = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return watchers_.size() == number;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_so), absl::Minutes(1));
  }
  std::vector<std::string> addresses() {
    absl::MutexLock lock(&mutex_);
    return addresses_;
  }

 private:
  absl::Mutex mutex_;
  bool opens_ ABSL_GUARDED_BY(mutex_) = true;
  std::list<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
};

class StepsApiTest : public ServerTest {
 protected:
  // The caller may use the models.
  void Start(HttpLimits limits = {}, std::vector<std::string> models = {"fake"}) {
    steps_ = &feed_;
    models_ = std::move(models);
    max_step_watchers_ = 2;
    StartServer(limits);
  }
  // The data of all events of this name.
  static std::vector<Json> EventsOf(const std::string& name, const std::string& text) {
    const std::string begin = "event: " + name + "\ndata: ";
    std::vector<Json> events;
    for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
      at += begin.size();
      events.push_back(Json::parse(text.substr(at, text.find('\n', at) - at)));
    }
    return events;
  }
  static Json ErrorOf(const HttpClient::Response& response) {
    return Json::parse(response.body())["error"];
  }

  FakeStepFeed feed_;
};

TEST_F(StepsApiTest, AWatcherSeesTheWorkerThenItsSteps) {
  Start();
  HttpClient client = Connect();
  client.Get("/v1/steps?worker=worker-0");
  const std::string head = client.ReadUntil("event: worker\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(head, HasSubstr("Cache-Control: no-cache"));
  feed_.Push(StepsOf({StepOf(1), StepOf(2)}));
  feed_.Push(StepsOf({StepOf(9)}, /*num_dropped=*/6));
  feed_.End(absl::UnavailableError("the worker ends"));
  const std::string rest = client.ReadUntil("event: error");
  SeenSteps seen;
  for (const Json& event : EventsOf("steps", rest)) seen.Add(event);
  EXPECT_EQ(seen.num_steps, 3);
  EXPECT_EQ(seen.num_dropped, 6);
  EXPECT_EQ(seen.last, 9);
  EXPECT_THAT(feed_.addresses(), ElementsAre("0"));
  EXPECT_TRUE(feed_.WaitForWatchers(0));
}

TEST_F(StepsApiTest, TheLastEventSaysWhyTheWatchEnds) {
  Start();
  HttpClient client = Connect();
  client.Get("/v1/steps");
  client.ReadUntil("event: worker\n");
  feed_.End(absl::UnavailableError("the worker ends"));
  const std::string rest = client.ReadUntil("0\r\n\r\n");
  ASSERT_EQ(EventsOf("error", rest).size(), 1);
  EXPECT_EQ(EventsOf("error", rest)[0]["error"]["message"], "the worker ends");
  // The connection serves the next request.
  client.Get("/healthz");
  EXPECT_EQ(client.Read().body(), "ok\n");
}

TEST_F(StepsApiTest, AKeyIsNeeded) {
  Start();
  service_.SetKey("0123456789abcdef");
  EXPECT_EQ(Get("/v1/steps").result_int(), 401);
  EXPECT_THAT(feed_.addresses(), ElementsAre());
  HttpClient client = Connect();
  client.Send(
      "GET /v1/steps HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("event: worker\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(StepsApiTest, AWorkerThatIsNotKnownIsNotFound) {
  Start();
  const HttpClient::Response response = Get("/v1/steps?worker=other");
  EXPECT_EQ(response.result_int(), 404);
  EXPECT_EQ(ErrorOf(response)["code"], "worker_not_found");
  EXPECT_EQ(ErrorOf(response)["message"], "there is no worker \"other\"");
  EXPECT_EQ(Post("/v1/steps", "{}").result_int(), 405);
  EXPECT_THAT(feed_.addresses(), ElementsAre());
}

TEST_F(StepsApiTest, OnlyWorkersOfTheCallersModelsAreToBeWatched) {
  Start({}, {"another model"});
  EXPECT_EQ(Get("/v1/steps?worker=worker-0").result_int(), 404);
  EXPECT_EQ(Get("/v1/steps").result_int(), 404);
  EXPECT_THAT(feed_.addresses(), ElementsAre());
}

TEST_F(StepsApiTest, HeadWatchesNothing) {
  Start();
  HttpClient client = Connect();
  client.Send("HEAD /v1/steps HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_EQ(client.Read(/*to_head=*/true).result_int(), 200);
  EXPECT_THAT(feed_.addresses(), ElementsAre());
}

TEST_F(StepsApiTest, AnErrorBeforeTheWatchIsTakenIsOneOfHttp) {
  Start();
  feed_.HoldOpen();
  HttpClient client = Connect();
  client.Get("/v1/steps");
  ASSERT_TRUE(feed_.WaitForWatchers(1));
  feed_.End(absl::UnavailableError("the model is being loaded"));
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.result_int(), 503);
  EXPECT_EQ(response["Retry-After"], "1");
  EXPECT_EQ(ErrorOf(response)["message"], "the model is being loaded");
  EXPECT_EQ(service_.rejected().size(), 1);
}

TEST_F(StepsApiTest, WatchersAreLimitedAndOneThatLeavesFreesItsPlace) {
  Start();
  {
    HttpClient first = Connect();
    first.Get("/v1/steps");
    first.ReadUntil("event: worker\n");
    // Of two places, one tenant gets one.
    const HttpClient::Response refused = Get("/v1/steps");
    EXPECT_EQ(refused.result_int(), 429);
    EXPECT_EQ(ErrorOf(refused)["code"], "overloaded");
    EXPECT_EQ(refused["Retry-After"], "1");
    EXPECT_TRUE(feed_.WaitForWatchers(1));
  }
  // The first has left without a word.
  EXPECT_TRUE(feed_.WaitForWatchers(0));
  HttpClient second = Connect();
  second.Get("/v1/steps");
  EXPECT_THAT(second.ReadUntil("event: worker\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(StepsApiTest, AWatchTakesItsMemoryFromThatOfAnswers) {
  HttpLimits limits;
  // A watch takes twice the queue, and no more than it leaves.
  limits.max_answers_bytes = 4 * StepQueue::kMaxBytes;
  Start(limits);
  {
    HttpClient client = Connect();
    client.Get("/v1/steps");
    EXPECT_THAT(client.ReadUntil("event: worker\n"), StartsWith("HTTP/1.1 200"));
  }
  ASSERT_TRUE(feed_.WaitForWatchers(0));
  server_.reset();
  limits.max_answers_bytes -= 1;
  Start(limits);
  EXPECT_EQ(Get("/v1/steps").result_int(), 429);
  EXPECT_EQ(feed_.addresses().size(), 1);
}

TEST_F(StepsApiTest, ASlowReaderLosesStepsAndIsToldHowMany) {
  Start();
  HttpClient client = Connect();
  client.Get("/v1/steps");
  client.ReadUntil("event: worker\n");
  // 20 MB, more than the sockets take while nobody reads.
  constexpr uint64_t kSteps = 700;
  v1::WatchStepsResponse response = StepsOf({StepOf(0, /*num_sequences=*/256)});
  for (uint64_t i = 1; i <= kSteps; ++i) {
    response.mutable_steps(0)->set_number(i);
    feed_.Push(response);
  }
  feed_.End(absl::UnavailableError("over"));
  const std::string text = client.ReadUntil("event: error");
  SeenSteps seen;
  for (size_t at = 0; (at = text.find("data: {\"steps\"", at)) != std::string::npos;) {
    at += 6;
    seen.Add(Json::parse(text.substr(at, text.find('\n', at) - at)));
  }
  EXPECT_TRUE(seen.in_order);
  EXPECT_GT(seen.num_dropped, 0);
  EXPECT_EQ(seen.last, kSteps);
  EXPECT_EQ(seen.num_steps + seen.num_dropped, kSteps);
}

TEST_F(StepsApiTest, AWatchEndsAtItsDeadline) {
  Start();
  HttpClient client = Connect();
  client.Send("GET /v1/steps HTTP/1.1\r\nHost: test\r\ngrpc-timeout: 20m\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), HasSubstr("\"code\":\"timeout\""));
  EXPECT_TRUE(feed_.WaitForWatchers(0));
}

TEST_F(StepsApiTest, ADrainEndsWatchesAndTakesNoMore) {
  Start();
  HttpClient client = Connect();
  client.Get("/v1/steps");
  client.ReadUntil("event: worker\n");
  api_->BeginDrain();
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), HasSubstr("\"code\":\"continue\""));
  EXPECT_EQ(Get("/v1/steps").result_int(), 503);
  EXPECT_TRUE(feed_.WaitForWatchers(0));
}

TEST_F(StepsApiTest, AServerThatEndsCancelsTheWatch) {
  Start();
  HttpClient client = Connect();
  client.Get("/v1/steps");
  client.ReadUntil("event: worker\n");
  server_.reset();
  EXPECT_TRUE(feed_.WaitForWatchers(0));
}

TEST_F(StepsApiTest, ASilentWatchIsKeptOpenByComments) {
  HttpLimits limits;
  limits.keepalive_interval = absl::Milliseconds(5);
  Start(limits);
  HttpClient client = Connect();
  client.Get("/v1/steps");
  client.ReadUntil(": keep-alive\n\n");
  feed_.Push(StepsOf({StepOf(1)}));
  EXPECT_THAT(client.ReadUntil("event: steps\n"), Not(HasSubstr("event: error")));
}

TEST(FindWatchedTest, AServingWorkerIsPreferredAndALostOneIsNone) {
  auto snapshot = std::make_shared<LoadSnapshot>();
  const auto add = [&](const char* worker, WorkerState state) {
    snapshot->workers.push_back(std::make_shared<const WorkerLoad>(
        WorkerLoad{.address = worker, .worker = worker, .model = "m", .state = state}));
  };
  const auto find = [&](const std::string& worker) -> std::string {
    const auto found =
        FindWatched({.worker = worker,
                     .fleet = [&] { return snapshot; },
                     .may_use = [](const std::string& model) { return model == "m"; }});
    return found.ok() ? (*found)->worker : "";
  };
  EXPECT_EQ(find(""), "");
  add("a", WorkerState::kDraining);
  EXPECT_EQ(find(""), "a");
  add("c", WorkerState::kServing);
  add("b", WorkerState::kServing);
  add("d", WorkerState::kLost);
  EXPECT_EQ(find(""), "b");
  EXPECT_EQ(find("a"), "a");
  EXPECT_EQ(find("d"), "");
}

}  // namespace
}  // namespace continuo::gateway::openai

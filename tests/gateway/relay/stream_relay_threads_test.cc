// SPDX-License-Identifier: Apache-2.0
// The relay among real threads: events of worker, client, timer and fleet arrive at the same time.
// ThreadSanitizer checks for races; the test checks that nothing is lost or left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/protocol/error.h"
#include "tests/gateway/serving_worker.h"
#include "tests/testing/fake_generation.h"

namespace continuo::gateway {
namespace {

constexpr int kNumThreads = 4;
constexpr int kNumStreams = 200;

// A few threads that run the posted functions, in any order.
class Threads {
 public:
  Threads() {
    for (int i = 0; i < kNumThreads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~Threads() {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }
  void Post(std::function<void()> f) {
    absl::MutexLock lock(&mutex_);
    queue_.push_back(std::move(f));
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> f;
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return stopped_ || !queue_.empty();
        };
        mutex_.Await(absl::Condition(&ready));
        if (queue_.empty()) return;
        f = std::move(queue_.front());
        queue_.pop_front();
      }
      f();
    }
  }

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// Calls that answer from other threads and break now and then.
class ThreadedTransport : public WorkerTransport {
 public:
  explicit ThreadedTransport(Threads* threads) : threads_(threads) {}

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& lease, const v1::GenerateRequest& request,
                                    const CallContext& context, bool /*is_migration*/) override {
    const int number = num_calls_++;
    // Two of three first calls break at some response.
    const int breaks_after = attempt <= 2 && number % 3 != 0 ? number % 11 : 1 << 30;
    return std::make_shared<Call>(
        threads_, std::move(relay), attempt,
        FakeGeneration({.name = lease.address()}, request, context.request_id), breaks_after);
  }
  int num_calls() const { return num_calls_; }

 private:
  class Call : public WorkerCall, public std::enable_shared_from_this<Call> {
   public:
    Call(Threads* threads, std::shared_ptr<StreamRelay> relay, int attempt,
         FakeGeneration generation, int breaks_after)
        : threads_(threads),
          relay_(std::move(relay)),
          attempt_(attempt),
          generation_(std::move(generation)),
          breaks_after_(breaks_after) {}
    void StartRead() override {
      threads_->Post([self = shared_from_this()] { self->Step(); });
    }
    void Abandon() override {
      // A call that was abandoned may still report its end.
      threads_->Post([self = shared_from_this()] {
        self->relay_->OnWorkerEnd(self->attempt_, absl::CancelledError("abandoned"));
      });
    }

   private:
    void Step() {
      if (num_sent_++ == breaks_after_) {
        relay_->OnWorkerEnd(attempt_, absl::UnavailableError("reset"));
        return;
      }
      std::optional<v1::GenerateResponse> response = generation_.Next();
      if (response.has_value()) {
        relay_->OnResponse(attempt_, *std::move(response));
      } else {
        relay_->OnWorkerEnd(attempt_, generation_.status());
      }
    }

    Threads* const threads_;
    const std::shared_ptr<StreamRelay> relay_;
    const int attempt_;
    FakeGeneration generation_;
    const int breaks_after_;
    int num_sent_ = 0;
  };

  Threads* const threads_;
  std::atomic<int> num_calls_ = 0;
};

class ThreadedClient : public RelayClient {
 public:
  ThreadedClient(Threads* threads, absl::BlockingCounter* open) : threads_(threads), open_(open) {}
  void Write(const v1::GenerateResponse& response) override {
    responses.push_back(response);
    threads_->Post([relay = relay] { relay->OnWritten(true); });
  }
  void Finish(const absl::Status& end, const RelayReport&) override {
    status = end;
    open_->DecrementCount();
  }
  std::shared_ptr<StreamRelay> relay;
  std::vector<v1::GenerateResponse> responses;
  absl::Status status = absl::UnknownError("open");

 private:
  Threads* const threads_;
  absl::BlockingCounter* const open_;
};

class MigrationCounter : public IgnoringObserver {
 public:
  void OnMigration(const RelayLabels&, std::string_view) override { ++migrations; }
  std::atomic<int> migrations = 0;
};

TEST(StreamRelayThreadsTest, ManyStreamsAreExactAmongManyThreads) {
  SystemClock clock;
  LoadView view;
  std::mt19937_64 random(1);
  Router router(&LeastLoadedOfTwo, &view, &clock, random, {.max_report_age = absl::Hours(1)});
  const auto publish = [&](bool first_serves) {
    LoadSnapshot snapshot;
    snapshot.known_models = {"fake"};
    for (int i = 0; i < 3; ++i) {
      snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
          WorkerLoad{.address = std::to_string(i),
                     .incarnation = std::to_string(i),
                     .model = "fake",
                     .fingerprint = "F",
                     .tokenizer_fingerprint = "T",
                     .state = i > 0 || first_serves ? WorkerState::kServing : WorkerState::kLost,
                     .report_time = clock.Elapsed()}));
    }
    view.Set(std::move(snapshot));
    router.ViewChanged();
  };
  publish(true);

  absl::BlockingCounter open(kNumStreams);
  MigrationCounter observer;
  Admission admission(AdmissionLimits{});
  std::vector<std::unique_ptr<ThreadedClient>> clients;
  std::vector<v1::GenerateRequest> requests;
  {
    TimerThread timer;
    Threads threads;
    ThreadedTransport transport(&threads);
    RelayEnvironment environment = {.router = &router,
                                    .transport = &transport,
                                    .timer = &timer,
                                    .clock = &clock,
                                    .observer = &observer};
    environment.options.retry.backoff_base = absl::Microseconds(100);
    for (int i = 0; i < kNumStreams; ++i) {
      v1::GenerateRequest& request = requests.emplace_back();
      request.set_text(std::to_string(i));
      request.mutable_sampling()->set_num_sequences(1 + i % 3);
      clients.push_back(std::make_unique<ThreadedClient>(&threads, &open));
      RelayRequest relay_request;
      relay_request.request = request;
      relay_request.context.request_id = "id";
      relay_request.seed = static_cast<uint64_t>(i);
      relay_request.ticket = *admission.Admit({.bytes = 10, .tokens = 7});
      clients.back()->relay = std::make_shared<StreamRelay>(environment, std::move(relay_request),
                                                            clients.back().get());
    }
    for (const auto& client : clients) {
      threads.Post([relay = client->relay] { relay->Start(); });
    }
    // Meanwhile one worker is lost and found again, and every tenth client gives up.
    for (int i = 0; i < kNumStreams; i += 10) {
      publish(/*first_serves=*/i % 20 == 0);
      router.WorkerLost("0", "");
      threads.Post([relay = clients[i]->relay] { relay->OnCancelled(); });
    }
    publish(true);
    open.Wait();
    EXPECT_GT(transport.num_calls(), kNumStreams);
  }
  for (int i = 0; i < kNumStreams; ++i) {
    clients[i]->relay.reset();
    if (i % 10 == 0 && absl::IsCancelled(clients[i]->status)) continue;
    ASSERT_EQ(clients[i]->status, absl::OkStatus()) << i;
    ASSERT_EQ(Join(clients[i]->responses), UndisturbedAnswer(requests[i])) << i;
  }
  EXPECT_GT(observer.migrations, kNumStreams / 3);
  for (const char* address : {"0", "1", "2"}) EXPECT_EQ(router.InFlight(address), 0);
  EXPECT_EQ(admission.counts().open_requests, 0);
}

}  // namespace
}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gateway behind the HTTP server, without gRPC: real relays over fake workers that follow a
// test's script, on threads of their own.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/base/clock.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/identity/idempotency.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/routing/router.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"
#include "tests/gateway/openai/fake_text_service.h"
#include "tests/gateway/serving_worker.h"
#include "tests/testing/fake_generation.h"

namespace continuo::gateway::openai {

// The script of the workers.
struct FakeScript {
  int hold_at = -1;  // a call is held before this response, until Release
  int fail_at = -1;  // a call ends with `failure` instead of this response
  absl::Status failure = absl::InvalidArgumentError("too bad");
  bool endless = false;  // a call has endless responses of 4 KiB
};

class FakeGenerateService : public GenerateService, public WorkerTransport {
 public:
  FakeGenerateService() : router_(&LeastLoadedOfTwo, &view_, &clock_, random_) {
    ServeModel("fake");
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~FakeGenerateService() override {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // The one worker's model from now on.
  void ServeModel(const std::string& model) {
    WorkerLoad worker = *ServingWorker("0");
    worker.model = model;
    LoadSnapshot snapshot;
    snapshot.known_models = {model};
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(std::move(worker)));
    view_.Set(std::move(snapshot));
  }
  void SetScript(const FakeScript& script) {
    absl::MutexLock lock(&mutex_);
    script_ = script;
  }
  std::shared_ptr<const LoadSnapshot> loads() const { return view_.Get(); }
  FakeTextService* text() { return &text_; }
  const FleetSecret* secret() const { return &secret_; }
  bool is_ready() const {
    absl::MutexLock lock(&mutex_);
    return ready_;
  }
  void SetReady(bool ready) {
    absl::MutexLock lock(&mutex_);
    ready_ = ready;
  }
  void SetKey(const std::string& key) {
    absl::MutexLock lock(&mutex_);
    key_ = key;
  }
  // Open number `number`, counted from 0, is rejected.
  void RejectOpen(int number, absl::Status status) {
    absl::MutexLock lock(&mutex_);
    reject_at_ = number;
    rejection_ = std::move(status);
  }
  // Held calls go on, and none is held any more.
  void Release() {
    absl::MutexLock lock(&mutex_);
    script_.hold_at = -1;
    for (auto& call : held_) queue_.push_back(std::move(call));
    held_.clear();
  }
  void EndAll(const absl::Status& status) {
    std::vector<std::shared_ptr<StreamRelay>> relays;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& weak : relays_) {
        if (auto relay = weak.lock()) relays.push_back(std::move(relay));
      }
    }
    for (const auto& relay : relays) relay->End(status);
  }
  // Both wait until `number` calls have been counted, for at most a minute.
  bool WaitForHeld(int number) { return WaitFor(&num_held_, number); }
  bool WaitForAbandoned(int number) { return WaitFor(&num_abandoned_, number); }
  int num_responses() {
    absl::MutexLock lock(&mutex_);
    return num_responses_;
  }
  std::vector<std::optional<CallIdentity>> identities() {
    absl::MutexLock lock(&mutex_);
    return identities_;
  }
  // The errors of requests that were rejected before Open.
  std::vector<absl::Status> rejected() {
    absl::MutexLock lock(&mutex_);
    return rejected_;
  }
  // ClientCall::tokens_had of each request.
  std::vector<int64_t> tokens_had() {
    absl::MutexLock lock(&mutex_);
    return tokens_had_;
  }
  // From now on the secret derives from a new key, and knows the earlier ones.
  void AddSecretKey() {
    absl::MutexLock lock(&mutex_);
    FleetSecret::Key key;
    key.fill(static_cast<uint8_t>(keys_.size()));
    keys_.insert(keys_.begin(), key);
  }
  // The size that each request counts as.
  std::vector<int64_t> num_bytes() {
    absl::MutexLock lock(&mutex_);
    return num_bytes_;
  }
  std::vector<v1::GenerateRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

  absl::StatusOr<std::string> Authenticate(const ClientCall& call) const override {
    absl::MutexLock lock(&mutex_);
    if (key_.empty() || call.metadata("authorization") == "Bearer " + key_) {
      const std::string tenant = call.metadata("x-tenant-id");
      return tenant.empty() ? "default" : tenant;
    }
    return absl::UnauthenticatedError("a valid key is needed");
  }
  absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                    v1::GenerateRequest request,
                                                    RelayClient* client) override {
    if (absl::Status status = protocol::ValidateGenerate(request); !status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    if (static_cast<int>(requests_.size()) == reject_at_) return rejection_;
    requests_.push_back(request);
    num_bytes_.push_back(call.num_bytes);
    tokens_had_.push_back(call.tokens_had);
    identities_.push_back(call.identity);
    RelayRequest relay_request;
    relay_request.context.request_id = request.request_id();
    relay_request.context.deadline = call.deadline;
    relay_request.request = std::move(request);
    auto relay = std::make_shared<StreamRelay>(RelayEnvironment{.router = &router_,
                                                                .transport = this,
                                                                .timer = &timer_,
                                                                .clock = &clock_,
                                                                .observer = &observer_},
                                               std::move(relay_request), client);
    relays_.push_back(relay);
    return relay;
  }
  void OnRejected(const std::string&, const std::string&, const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    rejected_.push_back(status);
  }
  absl::StatusOr<CallIdentity> Identify(const ClientCall&, std::string_view key) const override {
    absl::StatusOr<CallIdentity> identity = IdentityOfKey(secret_, "default", key, clock_.Now());
    absl::MutexLock lock(&mutex_);
    if (identity.ok()) identity->fingerprint = fingerprint_before_;
    return identity;
  }
  // Sets the fingerprint that an earlier answer of each key is said to have had.
  void SetFingerprintBefore(const std::string& fingerprint) {
    absl::MutexLock lock(&mutex_);
    fingerprint_before_ = fingerprint;
  }
  std::string MakeRequestId() override {
    absl::MutexLock lock(&mutex_);
    return absl::StrCat("made-", ++num_ids_);
  }

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& /*lease*/, const v1::GenerateRequest& request,
                                    const CallContext& context, bool /*is_migration*/) override {
    return std::make_shared<Call>(this, std::move(relay), attempt,
                                  FakeGeneration({.name = "w"}, request, context.request_id));
  }

 private:
  class Call : public WorkerCall, public std::enable_shared_from_this<Call> {
   public:
    Call(FakeGenerateService* service, std::shared_ptr<StreamRelay> relay, int attempt,
         FakeGeneration generation)
        : service_(service),
          relay_(std::move(relay)),
          attempt_(attempt),
          generation_(std::move(generation)) {}
    void StartRead() override {
      absl::MutexLock lock(&service_->mutex_);
      if (number_ == service_->script_.hold_at) {
        ++service_->num_held_;
        service_->held_.push_back([self = shared_from_this()] { self->Step(); });
      } else {
        service_->queue_.push_back([self = shared_from_this()] { self->Step(); });
      }
    }
    void Abandon() override {
      absl::MutexLock lock(&service_->mutex_);
      ++service_->num_abandoned_;
    }

   private:
    void Step() {
      FakeScript script;
      {
        absl::MutexLock lock(&service_->mutex_);
        script = service_->script_;
        ++service_->num_responses_;
      }
      if (number_ == script.fail_at) {
        relay_->OnWorkerEnd(attempt_, script.failure);
        return;
      }
      std::optional<v1::GenerateResponse> response;
      if (script.endless && number_ > 0) {
        response.emplace().set_sequence(number_);
        v1::Delta* const delta = response->add_deltas();
        delta->add_token_ids(1);
        delta->set_text(std::string(4096, 'x'));
      } else {
        response = generation_.Next();
      }
      ++number_;
      if (response.has_value()) {
        relay_->OnResponse(attempt_, *std::move(response));
      } else {
        relay_->OnWorkerEnd(attempt_, generation_.status());
      }
    }

    FakeGenerateService* const service_;
    const std::shared_ptr<StreamRelay> relay_;
    const int attempt_;
    FakeGeneration generation_;
    int number_ = 0;
  };

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
  bool WaitFor(const int* count, int number) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&] { return *count >= number; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Minutes(1));
  }

  const SystemClock clock_{};
  const FleetSecret secret_{[this] {
    absl::MutexLock lock(&mutex_);
    return keys_;
  }};
  FakeTextService text_;
  LoadView view_;
  std::mt19937_64 random_{1};
  Router router_;
  TimerThread timer_;
  IgnoringObserver observer_;

  mutable absl::Mutex mutex_;
  FakeScript script_ ABSL_GUARDED_BY(mutex_);
  std::string key_ ABSL_GUARDED_BY(mutex_);
  bool ready_ ABSL_GUARDED_BY(mutex_) = true;
  int reject_at_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Status rejection_ ABSL_GUARDED_BY(mutex_);
  std::string fingerprint_before_ ABSL_GUARDED_BY(mutex_);
  int num_ids_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_held_ = 0, num_abandoned_ = 0, num_responses_ = 0;  // under mutex_
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> rejected_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<CallIdentity>> identities_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> num_bytes_ ABSL_GUARDED_BY(mutex_), tokens_had_ ABSL_GUARDED_BY(mutex_);
  std::vector<FleetSecret::Key> keys_ ABSL_GUARDED_BY(mutex_) = std::vector<FleetSecret::Key>(1);
  std::vector<std::weak_ptr<StreamRelay>> relays_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> held_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace continuo::gateway::openai

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/identity/idempotency.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/routing/router.h"
#include "services/protocol/validate_request.h"
#include "tests/gateway/openai/fake_text_service.h"
#include "tests/gateway/serving_worker.h"
#include "tests/testing/fake_generation.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway::openai {

// Keeps callbacks until the fuzzer lets time pass.
class ManualTimer : public Timer {
 public:
  explicit ManualTimer(ManualClock* clock) : clock_(clock) {}
  void After(absl::Duration delay, std::function<void()> callback) override {
    due_.emplace(clock_->Elapsed() + std::clamp(delay, absl::ZeroDuration(), absl::Hours(1)),
                 std::move(callback));
  }
  // Lets time pass until the next callback; false where there is none.
  bool RunNext() {
    if (due_.empty()) return false;
    auto first = due_.extract(due_.begin());
    clock_->Advance(std::max(first.key() - clock_->Elapsed(), absl::ZeroDuration()));
    first.mapped()();
    return true;
  }
  void Clear() { due_.clear(); }

 private:
  ManualClock* const clock_;
  std::multimap<absl::Duration, std::function<void()>> due_;
};

// How the worker treats all calls but the neighbour's.
struct WorkerScript {
  int fail_at = -1;  // instead of this response a call ends with `failure`
  absl::Status failure;
  std::string key;  // that calls need; empty: none
};

// The gateway behind the HTTP server on one thread: real relays, over a worker whose responses are
// turns of the executor.
class InlineGateway : public GenerateService, public WorkerTransport {
 public:
  // Calls with this header are the neighbour's.
  static constexpr char kNeighbour[] = "x-neighbour-61a5c2f0e9";
  // The worker generates no more, so that an execution is short.
  static constexpr uint32_t kMaxTokens = 6;

  InlineGateway(boost::asio::io_context* context, ManualClock* clock)
      : context_(context),
        clock_(clock),
        timer_(clock),
        router_(&LeastLoadedOfTwo, &view_, clock, random_) {
    LoadSnapshot snapshot;
    snapshot.known_models = {"fake"};
    snapshot.discovery_complete = true;
    for (const char* const name : {"0", "1"}) {
      snapshot.workers.push_back(ServingWorker(name));
    }
    view_.Set(std::move(snapshot));
  }

  FakeTextService* text() { return &text_; }
  const FleetSecret* secret() const { return &secret_; }
  void SetScript(WorkerScript script) { script_ = std::move(script); }
  ManualTimer& timer() { return timer_; }
  bool is_ready() const { return true; }
  std::shared_ptr<const LoadSnapshot> loads() const { return view_.Get(); }
  // Requests that are open at workers.
  int64_t num_in_flight() const { return router_.InFlight("0") + router_.InFlight("1"); }

  absl::StatusOr<std::string> Authenticate(const ClientCall& call) const override {
    if (script_.key.empty() || call.metadata("authorization") == "Bearer " + script_.key ||
        !call.metadata(kNeighbour).empty()) {
      return "default";
    }
    return absl::UnauthenticatedError("a valid key is needed");
  }
  absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                    v1::GenerateRequest request,
                                                    RelayClient* client) override {
    if (absl::Status status = protocol::ValidateGenerate(request); !status.ok()) return status;
    RelayRequest relay_request;
    relay_request.context.request_id = request.request_id();
    relay_request.context.deadline = call.deadline;
    relay_request.context.tenant = call.metadata(kNeighbour);
    relay_request.request = std::move(request);
    v1::Stopping& stopping = *relay_request.request.mutable_stopping();
    stopping.set_max_tokens(
        std::min(stopping.has_max_tokens() ? stopping.max_tokens() : kMaxTokens, kMaxTokens));
    return std::make_shared<StreamRelay>(RelayEnvironment{.router = &router_,
                                                          .transport = this,
                                                          .timer = &timer_,
                                                          .clock = clock_,
                                                          .observer = &observer_},
                                         std::move(relay_request), client);
  }
  void OnRejected(const std::string&, const std::string&, const absl::Status& status) override {
    CONTINUO_CHECK(!status.ok());
  }
  std::string MakeRequestId() override { return "made"; }
  absl::StatusOr<CallIdentity> Identify(const ClientCall&, std::string_view key) const override {
    return IdentityOfKey(secret_, "default", key, clock_->Now());
  }

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& /*lease*/, const v1::GenerateRequest& request,
                                    const CallContext& context, bool /*is_migration*/) override {
    const bool fails = context.tenant.empty() && script_.fail_at >= 0;
    return std::make_shared<Call>(
        this, std::move(relay), attempt,
        // All have one name, which decides how tokens are grouped into responses.
        FakeGeneration({.name = "w"}, request, context.request_id), fails ? script_.fail_at : -1);
  }

 private:
  class Call : public WorkerCall, public std::enable_shared_from_this<Call> {
   public:
    Call(InlineGateway* gateway, std::shared_ptr<StreamRelay> relay, int attempt,
         FakeGeneration generation, int fail_at)
        : gateway_(gateway),
          relay_(std::move(relay)),
          attempt_(attempt),
          generation_(std::move(generation)),
          fail_at_(fail_at) {}
    void StartRead() override {
      boost::asio::post(*gateway_->context_, [self = shared_from_this()] { self->Step(); });
    }
    void Abandon() override {}

   private:
    void Step() {
      if (number_++ == fail_at_) {
        relay_->OnWorkerEnd(attempt_, gateway_->script_.failure);
      } else if (std::optional<v1::GenerateResponse> response = generation_.Next()) {
        relay_->OnResponse(attempt_, *std::move(response));
      } else {
        relay_->OnWorkerEnd(attempt_, generation_.status());
      }
    }

    InlineGateway* const gateway_;
    const std::shared_ptr<StreamRelay> relay_;
    const int attempt_;
    FakeGeneration generation_;
    const int fail_at_;
    int number_ = 0;
  };

  boost::asio::io_context* const context_;
  const FleetSecret secret_ = FleetSecret::Random();
  FakeTextService text_;
  ManualClock* const clock_;
  ManualTimer timer_;
  IgnoringObserver observer_;
  LoadView view_;
  std::mt19937_64 random_{1};
  Router router_;
  WorkerScript script_;
};

}  // namespace continuo::gateway::openai

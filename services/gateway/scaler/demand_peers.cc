// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/demand_peers.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "continuo/v1/gateway.grpc.pb.h"
#include "services/common/grpc/grpc_keepalive.h"

namespace continuo::gateway {
namespace {

// The number of models that a peer may tell of; the rest is ignored.
constexpr int kMaxModels = 4096;

std::shared_ptr<grpc::Channel> PeerChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  common::SetKeepalive(absl::Seconds(10), absl::Seconds(5), arguments);
  arguments.SetMaxReceiveMessageSize(2 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

int64_t Bounded(uint64_t count) {
  // A sum over all peers does not overflow.
  return static_cast<int64_t>(std::min<uint64_t>(count, uint64_t{1} << 40));
}

DemandByModel DemandOf(const v1::WatchDemandResponse& response) {
  DemandByModel demand;
  for (int i = 0; i < std::min(response.models_size(), kMaxModels); ++i) {
    const v1::ModelDemand& model = response.models(i);
    demand[model.model()] = {.open_requests = Bounded(model.open_requests()),
                             .queued_tokens = Bounded(model.queued_prompt_tokens())};
  }
  return demand;
}

}  // namespace

// Lets timers find out that this object is gone.
struct DemandPeers::Alive {
  absl::Mutex mutex;
  bool alive ABSL_GUARDED_BY(mutex) = true;
};

// One call of WatchDemand. Owns itself until it is done. The callbacks come one at a time, `on_end`
// last and once.
class DemandPeers::Watch : public grpc::ClientReadReactor<v1::WatchDemandResponse> {
 public:
  Watch(const std::string& address, std::function<void(const v1::WatchDemandResponse&)> on_demand,
        std::function<void(const Watch*)> on_end)
      : stub_(v1::GatewayService::NewStub(PeerChannel(address))),
        on_demand_(std::move(on_demand)),
        on_end_(std::move(on_end)) {}

  void Start(std::shared_ptr<Watch> self, const common::TokenFile* token) {
    self_ = std::move(self);
    if (token != nullptr) context_.AddMetadata(common::kTokenMetadata, token->tokens()->first());
    stub_->async()->WatchDemand(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    on_demand_(response_);
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& /*status*/) override {
    const std::shared_ptr<Watch> self = std::move(self_);
    on_end_(this);
  }

 private:
  const std::unique_ptr<v1::GatewayService::Stub> stub_;
  const std::function<void(const v1::WatchDemandResponse&)> on_demand_;
  const std::function<void(const Watch*)> on_end_;
  std::shared_ptr<Watch> self_;
  grpc::ClientContext context_;
  const v1::WatchDemandRequest request_;
  v1::WatchDemandResponse response_;
};

DemandPeers::DemandPeers(std::unique_ptr<Resolver> resolver, const common::TokenFile* token,
                         Demand* demand, Timer* timer)
    : resolver_(std::move(resolver)),
      token_(token),
      demand_(demand),
      timer_(timer),
      alive_(std::make_shared<Alive>()) {
  resolver_->Start([this](const std::vector<std::string>& addresses) { SetAddresses(addresses); });
}

DemandPeers::~DemandPeers() {
  resolver_->Stop();
  {
    absl::MutexLock lock(&alive_->mutex);
    alive_->alive = false;
  }
  std::vector<std::shared_ptr<Watch>> watches;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [address, watch] : watches_) {
      if (watch != nullptr) watches.push_back(std::move(watch));
    }
    watches_.clear();
  }
  for (const auto& watch : watches) watch->Cancel();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* num_calls) { return *num_calls == 0; }, &num_calls_));
}

void DemandPeers::SetAddresses(const std::vector<std::string>& addresses) {
  std::vector<std::pair<std::string, std::shared_ptr<Watch>>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    for (auto at = watches_.begin(); at != watches_.end();) {
      if (std::ranges::binary_search(addresses, at->first)) {
        ++at;
        continue;
      }
      dropped.emplace_back(at->first, std::move(at->second));
      at = watches_.erase(at);
    }
  }
  for (const auto& [address, watch] : dropped) {
    if (watch != nullptr) watch->Cancel();
    demand_->ForgetPeer(address);
  }
  for (const std::string& address : addresses) {
    {
      absl::MutexLock lock(&mutex_);
      if (!watches_.try_emplace(address).second) continue;
    }
    Connect(address);
  }
}

void DemandPeers::Connect(const std::string& address) {
  std::shared_ptr<Watch> watch;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = watches_.find(address);
    if (at == watches_.end() || at->second != nullptr) return;
    watch = std::make_shared<Watch>(
        address,
        [this, address](const v1::WatchDemandResponse& response) {
          demand_->SetPeer(address, response.incarnation(), DemandOf(response));
        },
        [this, address](const Watch* ended) { OnEnd(address, ended); });
    at->second = watch;
    ++num_calls_;
  }
  watch->Start(watch, token_);
}

void DemandPeers::OnEnd(const std::string& address, const Watch* watch) {
  demand_->ForgetPeer(address);
  bool is_listed = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = watches_.find(address);
    is_listed = at != watches_.end() && at->second.get() == watch;
    if (is_listed) at->second = nullptr;
  }
  if (is_listed) {
    timer_->After(kReconnect, [this, alive = alive_, address] {
      absl::MutexLock lock(&alive->mutex);
      if (alive->alive) Connect(address);
    });
  }
  // The destructor waits for it.
  absl::MutexLock lock(&mutex_);
  --num_calls_;
}

}  // namespace continuo::gateway

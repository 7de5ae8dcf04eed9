// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_pool.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "services/common/grpc/grpc_keepalive.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/log.h"

namespace continuo::gateway {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(200);
// A drain shows in a worker's health a little before its report of it arrives, and the other way
// round after loading.
constexpr absl::Duration kHungConfirm = absl::Milliseconds(400);
constexpr absl::Duration kHungReport = absl::Milliseconds(200);
// A check that comes so late tells of a pause of this process, not of silent workers.
constexpr absl::Duration kPause = absl::Seconds(1);
constexpr absl::Duration kModelQueryTimeout = absl::Seconds(5);

void SetDuration(absl::Duration from, google::protobuf::Duration* to) {
  to->set_seconds(absl::IDivDuration(from, absl::Seconds(1), &from));
  to->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(from)));
}

std::shared_ptr<WorkerChannel> MakeWorkerChannel(const std::string& address,
                                                 const WorkerPoolOptions& options) {
  grpc::ChannelArguments arguments;
  // A connection of its own, whatever other channels of this process there are.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  common::SetKeepalive(absl::Seconds(10), absl::Seconds(3), arguments);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // also how long connecting may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  arguments.SetMaxSendMessageSize(-1);
  // Routing is by address: a proxy in between would undo it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  return std::make_shared<WorkerChannel>(
      address, grpc::CreateCustomChannel(address, options.credentials, arguments));
}

WorkerState StateOf(const v1::WatchLoadResponse& report, bool listed) {
  switch (report.state()) {
    case v1::WORKER_STATE_SERVING:
      return listed ? WorkerState::kServing : WorkerState::kDraining;
    case v1::WORKER_STATE_DRAINING:
      return WorkerState::kDraining;
    default:
      return WorkerState::kLoading;
  }
}

// Nobody listens at the port, which a host says that is reached. gRPC tells it in words alone; a
// connection that is cut off times out.
bool WasRefused(const grpc::Status& status) {
  return status.error_message().find("Connection refused") != std::string::npos;
}

// The same for routing, whatever the counts.
bool SameRoute(const WorkerLoad& a, const WorkerLoad& b) {
  return a.state == b.state && a.incarnation == b.incarnation && a.fingerprint == b.fingerprint &&
         a.tokenizer_fingerprint == b.tokenizer_fingerprint;
}

}  // namespace

// Lets timers find out that the pool is gone.
struct WorkerPool::Alive {
  absl::Mutex mutex;
  bool alive ABSL_GUARDED_BY(mutex) = true;
};

// One WatchLoad call. Owns itself until it is done.
class WorkerPool::LoadWatch : public grpc::ClientReadReactor<v1::WatchLoadResponse> {
 public:
  LoadWatch(WorkerPool* pool, std::shared_ptr<WorkerChannel> channel, uint64_t id)
      : pool_(pool), channel_(std::move(channel)), id_(id) {}

  void Start(std::shared_ptr<LoadWatch> self) {
    self_ = std::move(self);
    SetDuration(pool_->options_.min_report_interval, request_.mutable_min_interval());
    SetDuration(pool_->options_.max_report_interval, request_.mutable_max_interval());
    channel_->worker->async()->WatchLoad(&context_, &request_, this);
    StartRead(&report_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    pool_->OnReport(channel_->address, id_, report_);
    StartRead(&report_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<LoadWatch> self = std::move(self_);
    pool_->OnWatchEnd(channel_->address, id_, status);
  }

 private:
  WorkerPool* const pool_;
  const std::shared_ptr<WorkerChannel> channel_;
  const uint64_t id_;
  std::shared_ptr<LoadWatch> self_;
  grpc::ClientContext context_;
  v1::WatchLoadRequest request_;
  v1::WatchLoadResponse report_;
};

WorkerPool::WorkerPool(WorkerPoolOptions options, LoadView* view, Router* router, Timer* timer,
                       const Clock* clock)
    : options_(std::move(options)),
      view_(view),
      router_(router),
      timer_(timer),
      clock_(clock),
      alive_(std::make_shared<Alive>()),
      check_time_(clock->Elapsed()),
      awake_time_(check_time_) {
  After(kCheckInterval, [this] { CheckWorkers(); });
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&alive_->mutex);
    alive_->alive = false;
  }
  std::vector<std::shared_ptr<LoadWatch>> watches;
  std::vector<std::shared_ptr<HealthWatch>> healths;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [address, worker] : workers_) {
      if (worker.watch != nullptr) watches.push_back(worker.watch);
      if (worker.health != nullptr) healths.push_back(worker.health);
    }
    workers_.clear();
  }
  for (const auto& watch : watches) watch->Cancel();
  for (const auto& health : healths) health->Cancel();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* num_calls) { return *num_calls == 0; }, &num_calls_));
}

void WorkerPool::After(absl::Duration delay, std::function<void()> method) {
  timer_->After(delay, [alive = alive_, method = std::move(method)] {
    absl::MutexLock lock(&alive->mutex);
    if (alive->alive) method();
  });
}

void WorkerPool::SetAddresses(const std::vector<WorkerAddress>& addresses, bool complete) {
  std::vector<std::string> added;
  std::vector<std::shared_ptr<LoadWatch>> dropped;
  std::vector<std::shared_ptr<HealthWatch>> dropped_health;
  bool changed = false;
  {
    absl::MutexLock lock(&mutex_);
    resolved_ = resolved_ || complete;
    for (auto& [address, worker] : workers_) {
      const bool listed =
          std::ranges::find(addresses, address, &WorkerAddress::address) != addresses.end();
      if (listed == worker.listed) continue;
      worker.listed = listed;
      // It may be listed again: SERVING returns with its next report.
      if (!listed) {
        for (auto& [model, load] : worker.loads) {
          if (load->state != WorkerState::kServing) continue;
          auto draining = std::make_shared<WorkerLoad>(*load);
          draining->state = WorkerState::kDraining;
          load = std::move(draining);
          changed = true;
        }
      }
    }
    std::set<std::string> seen;
    for (const auto& [address, pool, weight] : addresses) {
      if (!seen.insert(address).second) continue;
      const auto [at, is_new] = workers_.try_emplace(address);
      // The loads follow with the next report.
      at->second.pool = pool;
      at->second.pool_weight = weight;
      if (!is_new) continue;
      at->second.channel = MakeWorkerChannel(address, options_);
      at->second.first_time = clock_->Elapsed();
      added.push_back(address);
    }
    // Not listed and not alive: nothing holds it.
    for (auto at = workers_.begin(); at != workers_.end();) {
      if (at->second.listed || at->second.has_report) {
        ++at;
        continue;
      }
      if (at->second.watch != nullptr) dropped.push_back(std::move(at->second.watch));
      if (at->second.health != nullptr) dropped_health.push_back(std::move(at->second.health));
      slow_.Forget(at->first);
      at = workers_.erase(at);
      changed = true;
    }
    changed = Publish() || changed;
  }
  for (const auto& watch : dropped) watch->Cancel();
  for (const auto& health : dropped_health) health->Cancel();
  for (const std::string& address : added) StartWatch(address);
  if (changed) TellChange();
}

void WorkerPool::StartWatch(const std::string& address) {
  std::shared_ptr<LoadWatch> watch;
  std::shared_ptr<HealthWatch> health;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = workers_.find(address);
    if (at == workers_.end() || at->second.watch != nullptr) return;
    Worker& worker = at->second;
    worker.watch_id = next_watch_id_++;
    worker.has_report = worker.silent = false;
    worker.heard_time = clock_->Elapsed();
    worker.watch = std::make_shared<LoadWatch>(this, worker.channel, worker.watch_id);
    watch = worker.watch;
    worker.not_serving = worker.hung = false;
    const uint64_t id = worker.watch_id;
    worker.health = std::make_shared<HealthWatch>(
        worker.channel->channel,
        [this, address, id](bool not_serving) { OnHealth(address, id, not_serving); },
        [this, address, id] {
          OnHealth(address, id, /*not_serving=*/false);
          // The last thing: the destructor waits for it.
          absl::MutexLock lock(&mutex_);
          --num_calls_;
        });
    health = worker.health;
    num_calls_ += 2;
  }
  watch->Start(watch);
  health->Start(health);
}

void WorkerPool::OnHealth(const std::string& address, uint64_t watch_id, bool not_serving) {
  absl::MutexLock lock(&mutex_);
  const auto at = workers_.find(address);
  if (at == workers_.end() || at->second.watch_id != watch_id) return;
  Worker& worker = at->second;
  if (not_serving && !worker.not_serving) worker.contradicts_time = clock_->Elapsed();
  worker.not_serving = not_serving;
  // What it had as hung serves again with its next report.
  if (!not_serving) worker.hung = false;
}

bool WorkerPool::IsHung(const Worker& worker) const {
  if (!worker.not_serving || worker.hung || worker.silent) return false;
  if (clock_->Elapsed() - awake_time_ < kHungConfirm) return false;
  if (worker.heard_time - worker.contradicts_time < kHungReport) return false;
  if (clock_->Elapsed() - worker.contradicts_time < kHungConfirm) return false;
  return std::ranges::any_of(
      worker.loads, [](const auto& load) { return load.second->state == WorkerState::kServing; });
}

void WorkerPool::OnReport(const std::string& address, uint64_t watch_id,
                          const v1::WatchLoadResponse& report) {
  bool changed = false, replaced = false, ask_models = false, became_slow = false;
  std::shared_ptr<WorkerChannel> channel;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = workers_.find(address);
    if (at == workers_.end() || at->second.watch_id != watch_id) return;
    Worker& worker = at->second;
    if (worker.incarnation != report.incarnation()) {
      replaced = !worker.incarnation.empty();
      worker.incarnation = report.incarnation();
      worker.loads.clear();
      slow_.Forget(address);
      changed = true;
    }
    worker.tried = worker.has_report = true;
    worker.failures = 0;
    worker.silent = false;
    worker.heard_time = clock_->Elapsed();

    auto load = std::make_shared<WorkerLoad>();
    load->address = address;
    load->worker = report.worker();
    load->incarnation = report.incarnation();
    load->model = report.model();
    load->fingerprint = report.fingerprint();
    load->tokenizer_fingerprint = report.tokenizer_fingerprint();
    load->state = StateOf(report, worker.listed);
    if (load->state == WorkerState::kServing && worker.hung) load->state = WorkerState::kHung;
    load->running_requests = report.running_requests();
    load->waiting_requests = report.waiting_requests();
    load->pending_prompt_tokens = static_cast<int64_t>(report.pending_prompt_tokens());
    load->used_kv_blocks = report.used_kv_blocks();
    load->total_kv_blocks = report.total_kv_blocks();
    load->block_size_tokens = report.block_size_tokens();
    load->max_running_requests = report.max_running_requests();
    load->pool = worker.pool;
    load->pool_weight = worker.pool_weight;
    load->report_time = worker.heard_time;
    load->slow = slow_.Report(address, absl::StrCat(load->model, "\n", load->fingerprint),
                              report.steps(), report.running_requests(), worker.heard_time);
    std::shared_ptr<const WorkerLoad>& slot = worker.loads[report.model()];
    if (load->state == WorkerState::kServing &&
        (slot == nullptr || slot->state != WorkerState::kServing)) {
      worker.contradicts_time = worker.heard_time;
    }
    if (load->slow && (slot == nullptr || !slot->slow)) became_slow = true;
    changed = changed || slot == nullptr || !SameRoute(*slot, *load);
    slot = std::move(load);
    if (!report.model().empty()) {
      worker.told = true;
      known_models_.insert(report.model());
      worker.loads.erase("");  // what it was called while it could not tell yet
    }

    if (report.state() == v1::WORKER_STATE_SERVING && worker.models_of != worker.incarnation) {
      worker.models_of = worker.incarnation;
      ask_models = true;
      channel = worker.channel;
      ++num_calls_;
    }
    changed = Publish() || changed;
  }
  if (replaced) router_->WorkerLost(address, report.incarnation());
  if (became_slow) common::Log(common::LogSeverity::kWarning, "worker slow", {{"worker", address}});
  if (changed) TellChange();
  if (!ask_models) return;

  struct Query {
    grpc::ClientContext context;
    v1::ListModelsRequest request;
    v1::ListModelsResponse response;
  };
  auto query = std::make_shared<Query>();
  query->context.set_deadline(absl::ToChronoTime(absl::Now() + kModelQueryTimeout));
  channel->inference->async()->ListModels(
      &query->context, &query->request, &query->response,
      [this, query, channel, address, incarnation = report.incarnation()](grpc::Status status) {
        OnModels(address, incarnation, status, query->response);
      });
}

void WorkerPool::OnModels(const std::string& address, const std::string& incarnation,
                          const grpc::Status& status, const v1::ListModelsResponse& response) {
  absl::MutexLock lock(&mutex_);
  --num_calls_;
  if (status.ok()) {
    for (const v1::Model& model : response.models()) models_[model.name()] = model;
    return;
  }
  // Asked again with the next report.
  const auto at = workers_.find(address);
  if (at != workers_.end() && at->second.models_of == incarnation) at->second.models_of.clear();
}

void WorkerPool::OnWatchEnd(const std::string& address, uint64_t watch_id,
                            const grpc::Status& status) {
  bool was_connected = false, again = false, changed = false;
  std::shared_ptr<HealthWatch> health;
  absl::Duration delay;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = workers_.find(address);
    if (at != workers_.end() && at->second.watch_id == watch_id) {
      Worker& worker = at->second;
      was_connected = worker.has_report;
      worker.tried = true;
      worker.watch = nullptr;
      health = std::move(worker.health);
      slow_.Forget(address);
      changed = MarkLost(worker, !worker.has_report && WasRefused(status));
      worker.has_report = false;
      if (worker.listed) {
        again = true;
        delay = options_.min_reconnect * (1 << std::min(worker.failures, 8));
        delay = std::min(delay, options_.max_reconnect);
        worker.failures += 1;
      } else {
        workers_.erase(at);
        changed = true;
      }
      changed = Publish() || changed;
    }
  }
  if (health != nullptr) health->Cancel();
  if (was_connected) {
    const absl::Status why = common::FromGrpcStatus(status);
    common::Log(common::LogSeverity::kWarning, "worker lost",
                {{"worker", address}, {"error", std::string(why.message())}});
    if (options_.on_lost) options_.on_lost();
  }
  if (changed) TellChange();
  if (again) After(delay, [this, address] { StartWatch(address); });
  // The last thing: the destructor waits for it.
  absl::MutexLock lock(&mutex_);
  --num_calls_;
}

void WorkerPool::CheckWorkers() {
  std::vector<std::pair<std::string, const char*>> lost;
  bool changed = false;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_->Elapsed();
    // What they said meanwhile may not have been read yet.
    if (now - std::exchange(check_time_, now) > kPause) awake_time_ = now;
    for (auto& [address, worker] : workers_) {
      if (worker.watch == nullptr) continue;
      // A watch that was opened and has never reported is silent as well.
      const absl::Duration heard_time = std::max(worker.heard_time, awake_time_);
      if (!worker.silent && now - heard_time > options_.max_silence) {
        worker.tried = worker.silent = true;
        changed = MarkLost(worker, /*refused=*/false) || changed;
        lost.emplace_back(address, "worker silent");
      } else if (IsHung(worker)) {
        worker.hung = true;
        MarkHung(worker);
        changed = true;
        lost.emplace_back(address, "worker hung");
      }
    }
    if (changed || IsSettled() != settled_) changed = Publish() || changed;
  }
  for (const auto& [address, message] : lost) {
    common::Log(common::LogSeverity::kWarning, message, {{"worker", address}});
    router_->WorkerLost(address, /*alive_incarnation=*/"");
  }
  if (changed) TellChange();
  if (!lost.empty() && options_.on_lost) options_.on_lost();
  After(kCheckInterval, [this] { CheckWorkers(); });
}

void WorkerPool::TellChange() {
  router_->ViewChanged();
  if (options_.on_change) options_.on_change();
}

void WorkerPool::MarkHung(Worker& worker) {
  for (auto& [model, load] : worker.loads) {
    if (load->state != WorkerState::kServing) continue;
    auto hung = std::make_shared<WorkerLoad>(*load);
    hung->state = WorkerState::kHung;
    load = std::move(hung);
  }
}

bool WorkerPool::MarkLost(Worker& worker, bool refused) {
  bool changed = false;
  for (auto& [model, load] : worker.loads) {
    if (load->state == WorkerState::kLost && (load->refused || !refused)) continue;
    auto lost = std::make_shared<WorkerLoad>(*load);
    lost->state = WorkerState::kLost;
    lost->refused = lost->refused || refused;
    load = std::move(lost);
    changed = true;
  }
  return changed;
}

bool WorkerPool::IsSettled() const {
  const absl::Duration now = clock_->Elapsed();
  return resolved_ && std::ranges::all_of(workers_, [&](const auto& at) {
           const Worker& worker = at.second;
           return worker.told || (worker.tried && now - worker.first_time >= options_.settle_wait);
         });
}

bool WorkerPool::Publish() {
  LoadSnapshot snapshot;
  snapshot.discovery_complete = IsSettled();
  for (const auto& [address, worker] : workers_) {
    for (const auto& [model, load] : worker.loads) snapshot.workers.push_back(load);
  }
  snapshot.known_models.assign(known_models_.begin(), known_models_.end());
  const bool changed =
      std::exchange(settled_, snapshot.discovery_complete) != snapshot.discovery_complete;
  view_->Set(std::move(snapshot));
  return changed;
}

std::shared_ptr<WorkerChannel> WorkerPool::Find(const std::string& address) const {
  absl::MutexLock lock(&mutex_);
  const auto at = workers_.find(address);
  return at == workers_.end() ? nullptr : at->second.channel;
}

std::vector<v1::Model> WorkerPool::Models() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Model> result;
  for (const std::string& name : known_models_) {
    v1::Model& model = result.emplace_back();
    if (const auto told = models_.find(name); told != models_.end()) model = told->second;
    model.set_name(name);
    model.clear_fingerprints();
    std::set<std::string> fingerprints;
    uint32_t num_workers = 0;
    for (const auto& [address, worker] : workers_) {
      const auto at = worker.loads.find(name);
      if (at == worker.loads.end() || at->second->state != WorkerState::kServing) continue;
      ++num_workers;
      if (!at->second->fingerprint.empty()) fingerprints.insert(at->second->fingerprint);
    }
    for (const std::string& fingerprint : fingerprints) model.add_fingerprints(fingerprint);
    model.set_num_workers(num_workers);
  }
  return result;
}

}  // namespace continuo::gateway

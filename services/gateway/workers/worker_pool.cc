// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_pool.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/log.h"
#include "services/protocol/proto_time.h"

namespace continuo::gateway {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(200);
// A check that is this late means that this process has paused, not that workers are silent.
constexpr absl::Duration kPause = absl::Seconds(1);
constexpr absl::Duration kModelQueryTimeout = absl::Seconds(5);

void LogWorker(const std::string& message, const std::string& address) {
  common::Log(common::LogSeverity::kWarning, message, {{"worker", address}});
}

}  // namespace

// Lets timers find out that the pool is gone.
struct WorkerPool::Alive {
  absl::Mutex mutex;
  bool alive ABSL_GUARDED_BY(mutex) = true;
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
      awake_time_(check_time_),
      catalog_(options_.declared_models) {
  {
    // Declared models are known before the first address is.
    absl::MutexLock lock(&mutex_);
    Publish();
  }
  After(kCheckInterval, [this] { CheckWorkers(); });
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&alive_->mutex);
    alive_->alive = false;
  }
  std::vector<std::shared_ptr<WorkerConnection>> connections;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [address, worker] : workers_) {
      if (worker.connection != nullptr) connections.push_back(worker.connection);
    }
    workers_.clear();
  }
  for (const auto& connection : connections) connection->Cancel();
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
  std::vector<std::shared_ptr<WorkerConnection>> dropped;
  News news;
  {
    absl::MutexLock lock(&mutex_);
    addresses_complete_ = addresses_complete_ || complete;
    std::set<std::string> listed;
    for (const auto& [address, pool, weight] : addresses) {
      if (!listed.insert(address).second) continue;
      auto at = workers_.find(address);
      if (at == workers_.end()) {
        at =
            workers_
                .emplace(address, Worker{.record = {address, options_.verdict, clock_->Elapsed()},
                                         .channel = MakeWorkerChannel(address, options_.credentials,
                                                                      options_.tls_server_name)})
                .first;
        added.push_back(address);
      }
      at->second.record.SetPool(pool, weight);
    }
    for (auto& [address, worker] : workers_) {
      news.changed |= worker.record.SetListed(listed.contains(address));
    }
    news.changed |= DropUnlisted(&dropped);
    news.changed |= Publish();
  }
  for (const auto& connection : dropped) connection->Cancel();
  for (const std::string& address : added) Connect(address);
  Tell(news);
}

bool WorkerPool::DropUnlisted(std::vector<std::shared_ptr<WorkerConnection>>* dropped) {
  bool any = false;
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = at->second;
    if (worker.record.listed() || worker.record.has_report()) {
      ++at;
      continue;
    }
    if (worker.connection != nullptr) dropped->push_back(std::move(worker.connection));
    slow_.Forget(at->first);
    at = workers_.erase(at);
    any = true;
  }
  return any;
}

void WorkerPool::Connect(const std::string& address) {
  v1::WatchLoadRequest request;
  *request.mutable_min_interval() = protocol::ToProto(options_.min_report_interval);
  *request.mutable_max_interval() = protocol::ToProto(options_.max_report_interval);
  std::shared_ptr<WorkerConnection> connection;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = workers_.find(address);
    if (at == workers_.end() || at->second.connection != nullptr) return;
    Worker& worker = at->second;
    const uint64_t id = next_connection_id_++;
    connection = std::make_shared<WorkerConnection>(
        worker.channel, request,
        WorkerConnection::Callbacks{
            .on_report = [this, address, id](const auto& report) { OnReport(address, id, report); },
            .on_health = [this, address, id](bool bad) { OnHealth(address, id, bad); },
            .on_end = [this, address, id](const auto& end) { OnConnectionEnd(address, id, end); },
            .on_done = [this] { OnCallDone(); }});
    worker.connection = connection;
    worker.connection_id = id;
    worker.record.OnConnecting(clock_->Elapsed());
    ++num_calls_;
  }
  connection->Start();
}

WorkerPool::Worker* WorkerPool::FindWorker(const std::string& address, uint64_t connection_id) {
  const auto at = workers_.find(address);
  if (at == workers_.end() || at->second.connection_id != connection_id) return nullptr;
  return &at->second;
}

void WorkerPool::OnHealth(const std::string& address, uint64_t connection_id, bool not_serving) {
  absl::MutexLock lock(&mutex_);
  Worker* const worker = FindWorker(address, connection_id);
  if (worker != nullptr) worker->record.OnHealth(not_serving, clock_->Elapsed());
}

void WorkerPool::OnReport(const std::string& address, uint64_t connection_id,
                          const v1::WatchLoadResponse& report) {
  ReportNews report_news;
  bool query_models = false;
  std::shared_ptr<WorkerChannel> channel;
  {
    absl::MutexLock lock(&mutex_);
    Worker* const worker = FindWorker(address, connection_id);
    if (worker == nullptr) return;
    report_news = worker->record.OnReport(report, clock_->Elapsed(), &slow_);
    if (!report.model().empty()) catalog_.AddName(report.model());
    query_models = worker->record.TakeModelQuery(report);
    if (query_models) ++num_calls_;
    channel = worker->channel;
    report_news.changed |= Publish();
  }
  if (report_news.became_slow) LogWorker("worker slow", address);
  News news = {.changed = report_news.changed};
  if (report_news.replaced) news.lost.push_back({address, report.incarnation()});
  Tell(news);
  if (!query_models) return;
  QueryModels(channel, kModelQueryTimeout,
              [this, address, incarnation = report.incarnation()](
                  const grpc::Status& status, const v1::ListModelsResponse& response) {
                OnModels(address, incarnation, status, response);
                OnCallDone();
              });
}

void WorkerPool::OnModels(const std::string& address, const std::string& incarnation,
                          const grpc::Status& status, const v1::ListModelsResponse& response) {
  absl::MutexLock lock(&mutex_);
  if (status.ok()) {
    for (const v1::Model& model : response.models()) catalog_.SetDescription(model);
  } else if (const auto at = workers_.find(address); at != workers_.end()) {
    at->second.record.OnModelQueryFailed(incarnation);
  }
}

void WorkerPool::OnConnectionEnd(const std::string& address, uint64_t connection_id,
                                 const grpc::Status& status) {
  News news;
  std::optional<absl::Duration> reconnect_delay;
  {
    absl::MutexLock lock(&mutex_);
    Worker* const worker = FindWorker(address, connection_id);
    if (worker != nullptr) {
      WorkerRecord& record = worker->record;
      news.refresh_addresses = record.has_report();
      news.changed = record.OnEnd(/*refused=*/!record.has_report() && WasRefused(status));
      worker->connection = nullptr;
      slow_.Forget(address);
      if (record.listed()) {
        reconnect_delay = record.NextReconnectDelay(options_.min_reconnect, options_.max_reconnect);
      } else {
        workers_.erase(address);
        news.changed = true;
      }
      news.changed |= Publish();
    }
  }
  if (news.refresh_addresses) {
    const absl::Status why = common::FromGrpcStatus(status);
    common::Log(common::LogSeverity::kWarning, "worker lost",
                {{"worker", address}, {"error", std::string(why.message())}});
  }
  Tell(news);
  if (reconnect_delay.has_value()) After(*reconnect_delay, [this, address] { Connect(address); });
}

void WorkerPool::OnCallDone() {
  // The destructor waits for it.
  absl::MutexLock lock(&mutex_);
  --num_calls_;
}

void WorkerPool::CheckWorkers() {
  News news;
  std::vector<Verdict> verdicts;  // Of news.lost.
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_->Elapsed();
    if (now - std::exchange(check_time_, now) > kPause) awake_time_ = now;
    for (auto& [address, worker] : workers_) {
      const std::optional<Verdict> verdict = worker.record.Check(now, awake_time_, &news.changed);
      if (!verdict.has_value()) continue;
      verdicts.push_back(*verdict);
      news.lost.push_back({.address = address});
    }
    news.refresh_addresses = !news.lost.empty();
    if (news.changed || IsDiscoveryComplete() != discovery_complete_) news.changed |= Publish();
  }
  for (size_t i = 0; i < verdicts.size(); ++i) {
    LogWorker(absl::StrCat("worker ", VerdictName(verdicts[i])), news.lost[i].address);
  }
  Tell(news);
  After(kCheckInterval, [this] { CheckWorkers(); });
}

void WorkerPool::Tell(const News& news) {
  for (const LostWorker& lost : news.lost) {
    router_->WorkerLost(lost.address, lost.alive_incarnation);
  }
  if (news.refresh_addresses && options_.on_lost) options_.on_lost();
  if (!news.changed) return;
  router_->ViewChanged();
  if (options_.on_change) options_.on_change();
}

bool WorkerPool::IsDiscoveryComplete() const {
  const absl::Duration now = clock_->Elapsed();
  return addresses_complete_ && std::ranges::all_of(workers_, [&](const auto& entry) {
           return entry.second.record.IsDiscovered(now, options_.discovery_wait);
         });
}

bool WorkerPool::Publish() {
  LoadSnapshot snapshot;
  snapshot.discovery_complete = IsDiscoveryComplete();
  for (const auto& [address, worker] : workers_) {
    for (const auto& [name, model] : worker.record.models()) snapshot.workers.push_back(model.load);
  }
  snapshot.known_models = catalog_.Names();
  const bool changed = std::exchange(discovery_complete_, snapshot.discovery_complete) !=
                       snapshot.discovery_complete;
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
  return catalog_.Models(*view_->Get());
}

}  // namespace continuo::gateway

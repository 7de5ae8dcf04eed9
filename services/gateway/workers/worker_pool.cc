// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_pool.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/log.h"
#include "services/gateway/workers/silence.h"
#include "services/protocol/proto_time.h"

namespace continuo::gateway {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(200);
// A check that is this late means that this process has paused, not that workers are silent.
constexpr absl::Duration kPause = absl::Seconds(1);
constexpr absl::Duration kModelQueryTimeout = absl::Seconds(5);
// The view is written at most for this share of the time, however long it takes in a large fleet.
constexpr int kPublishShare = 10;

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
    connections_.clear();
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
      const auto at = workers_.find(address);
      const bool is_new = at == workers_.end();
      if (is_new) added.push_back(address);
      Worker& worker = is_new ? AddWorker(address) : at->second;
      worker.record.SetPool(pool, weight);
    }
    for (auto& [address, worker] : workers_) {
      changed_ |= worker.record.SetListed(listed.contains(address), clock_->Elapsed());
    }
    changed_ |= DropUnlisted(&dropped);
    news.changed = Publish();
  }
  for (const auto& connection : dropped) connection->Cancel();
  for (const std::string& address : added) Connect(address);
  Tell(news);
}

WorkerPool::Worker& WorkerPool::AddWorker(const std::string& address) {
  order_.clear();
  all_discovered_ = false;
  Worker& worker =
      workers_
          .emplace(address, Worker{.address = address,
                                   .record = {address, options_.verdict, clock_->Elapsed()},
                                   .channel = MakeWorkerChannel(address, options_.connect)})
          .first->second;
  absl::MutexLock lock(&channels_mutex_);
  channels_[address] = worker.channel;
  return worker;
}

void WorkerPool::RemoveWorker(const std::string& address) {
  order_.clear();
  const auto at = workers_.find(address);
  connections_.erase(at->second.connection_id);
  slow_.Forget(address);
  absl::MutexLock lock(&channels_mutex_);
  channels_.erase(address);
  workers_.erase(at);
}

bool WorkerPool::DropUnlisted(std::vector<std::shared_ptr<WorkerConnection>>* dropped) {
  const absl::Duration now = clock_->Elapsed();
  std::vector<std::string> unlisted;
  for (auto& [address, worker] : workers_) {
    const WorkerRecord& record = worker.record;
    if (record.listed()) continue;
    if (record.has_report() &&
        (now - record.listed_time() < options_.unlisted_wait || router_->InFlight(address) > 0)) {
      continue;
    }
    if (worker.connection != nullptr) dropped->push_back(std::move(worker.connection));
    unlisted.push_back(address);
  }
  for (const std::string& address : unlisted) RemoveWorker(address);
  return !unlisted.empty();
}

void WorkerPool::Connect(const std::string& address) {
  v1::WatchLoadRequest request;
  std::shared_ptr<WorkerConnection> connection;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = workers_.find(address);
    if (at == workers_.end() || at->second.connection != nullptr) return;
    Worker& worker = at->second;
    const uint64_t id = next_connection_id_++;
    const auto num_workers = static_cast<double>(workers_.size());
    *request.mutable_min_interval() = protocol::ToProto(
        std::clamp(num_workers * options_.min_report_interval_per_worker,
                   options_.min_report_interval, options_.min_report_interval_at_most));
    *request.mutable_max_interval() = protocol::ToProto(
        std::clamp(num_workers * options_.max_report_interval_per_worker,
                   options_.max_report_interval, options_.max_report_interval_at_most));
    connection = std::make_shared<WorkerConnection>(
        worker.channel, request,
        WorkerConnection::Callbacks{
            .on_report = [this, id](const auto& report) { OnReport(id, report); },
            .on_health = [this, id](bool bad) { OnHealth(id, bad); },
            .on_end = [this, id](const auto& status) { OnConnectionEnd(id, status); },
            .on_done = [this] { OnCallDone(); }});
    worker.connection = connection;
    worker.connection_id = id;
    connections_[id] = &worker;
    worker.record.OnConnecting(clock_->Elapsed());
    ++num_calls_;
  }
  connection->Start();
}

WorkerPool::Worker* WorkerPool::FindWorker(uint64_t connection_id) {
  const auto at = connections_.find(connection_id);
  return at == connections_.end() ? nullptr : at->second;
}

void WorkerPool::OnHealth(uint64_t connection_id, bool not_serving) {
  absl::MutexLock lock(&mutex_);
  Worker* const worker = FindWorker(connection_id);
  if (worker != nullptr) worker->record.OnHealth(not_serving, clock_->Elapsed());
}

void WorkerPool::OnReport(uint64_t connection_id, const v1::WatchLoadResponse& report) {
  ReportNews report_news;
  News news;
  bool query_models = false;
  std::string address;
  std::shared_ptr<WorkerChannel> channel;
  std::optional<absl::Duration> publish_delay;
  {
    absl::MutexLock lock(&mutex_);
    Worker* const worker = FindWorker(connection_id);
    if (worker == nullptr) return;
    worker->is_refusing = false;
    report_news = worker->record.OnReport(report, clock_->Elapsed(), &slow_);
    if (report_news.changed && !report.model().empty()) {
      catalog_.AddName(report.model());
      for (const v1::ServedAdapter& adapter : report.adapters()) {
        catalog_.AddAdapter(adapter.model(), report.model());
      }
      // It is asked to describe the models once it serves.
      if (report.state() != v1::WORKER_STATE_SERVING) {
        catalog_.List(report.model());
        for (const v1::ServedAdapter& adapter : report.adapters()) catalog_.List(adapter.model());
      }
    }
    for (const std::string& name : report_news.withdrawn) catalog_.Withdraw(name);
    query_models = worker->record.TakeModelQuery(report);
    if (query_models) {
      ++num_calls_;
      channel = worker->channel;
    }
    if (query_models || report_news.replaced || report_news.became_slow) address = worker->address;
    if (report_news.urgent) {
      changed_ |= report_news.changed;
      news.changed = Publish();
    } else {
      news.changed = PublishSoon(report_news.changed, &publish_delay);
    }
  }
  if (publish_delay.has_value()) After(*publish_delay, [this] { PublishDelayed(); });
  if (report_news.became_slow) LogWorker("worker slow", address);
  if (report_news.replaced) news.lost.push_back({address, report.incarnation()});
  Tell(news);
  if (!query_models) return;
  QueryModels(channel, kModelQueryTimeout,
              [this, address, incarnation = report.incarnation(), model = report.model()](
                  const grpc::Status& status, const v1::ListModelsResponse& response) {
                OnModels(address, incarnation, model, status, response);
                OnCallDone();
              });
}

void WorkerPool::OnModels(const std::string& address, const std::string& incarnation,
                          const std::string& model, const grpc::Status& status,
                          const v1::ListModelsResponse& response) {
  absl::MutexLock lock(&mutex_);
  if (status.ok()) {
    for (const v1::Model& description : response.models()) {
      // An adapter that is gone since, or that no report has named yet.
      if (!description.parent().empty() && !catalog_.Knows(description.name())) continue;
      catalog_.SetDescription(description);
      if (!description.parent().empty()) catalog_.List(description.name());
    }
  } else if (const auto at = workers_.find(address); at != workers_.end()) {
    at->second.record.OnModelQueryFailed(incarnation);
  }
  if (!model.empty()) catalog_.List(model);
}

void WorkerPool::OnConnectionEnd(uint64_t connection_id, const grpc::Status& status) {
  News news;
  std::string address;
  bool is_new_refusal = false;
  std::optional<absl::Duration> reconnect_delay, publish_delay;
  {
    absl::MutexLock lock(&mutex_);
    Worker* const worker = FindWorker(connection_id);
    if (worker == nullptr) return;
    address = worker->address;
    WorkerRecord& record = worker->record;
    news.refresh_addresses = record.has_report();
    is_new_refusal = IsStranger(status) && !std::exchange(worker->is_refusing, true);
    changed_ |= record.OnEnd(/*refused=*/!record.has_report() && WasRefused(status));
    connections_.erase(connection_id);
    worker->connection = nullptr;
    slow_.Forget(address);
    if (record.listed()) {
      reconnect_delay = record.NextReconnectDelay(options_.min_reconnect, options_.max_reconnect);
    } else {
      RemoveWorker(address);
      changed_ = true;
    }
    news.changed = changed_ ? Publish() : PublishSoon(false, &publish_delay);
  }
  if (publish_delay.has_value()) After(*publish_delay, [this] { PublishDelayed(); });
  if (news.refresh_addresses) {
    const absl::Status why = common::FromGrpcStatus(status);
    common::Log(common::LogSeverity::kWarning, "worker lost",
                {{"worker", address}, {"error", std::string(why.message())}});
  }
  if (is_new_refusal) {
    const absl::Status why = common::FromGrpcStatus(status);
    common::Log(common::LogSeverity::kError, "worker refuses this gateway",
                {{"worker", address},
                 {"reason", protocol::ReasonOf(why)},
                 {"error", std::string(why.message())}});
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
  std::vector<std::shared_ptr<WorkerConnection>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_->Elapsed();
    if (now - std::exchange(check_time_, now) > kPause) awake_time_ = now;
    const absl::Duration silence_limit = SilenceLimit(now);
    for (auto& [address, worker] : workers_) {
      const std::optional<Verdict> verdict =
          worker.record.Check(now, awake_time_, &changed_, silence_limit);
      if (!verdict.has_value()) continue;
      verdicts.push_back(*verdict);
      news.lost.push_back({.address = address});
    }
    news.refresh_addresses = !news.lost.empty();
    changed_ |= DropUnlisted(&dropped);
    if (changed_ || IsDiscoveryComplete() != discovery_complete_) news.changed = Publish();
  }
  for (const auto& connection : dropped) connection->Cancel();
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

bool WorkerPool::IsDiscoveryComplete() {
  const absl::Duration now = clock_->Elapsed();
  // A worker that is discovered stays so.
  all_discovered_ = all_discovered_ || std::ranges::all_of(workers_, [&](const auto& entry) {
                      return entry.second.record.IsDiscovered(now, options_.discovery_wait);
                    });
  return addresses_complete_ && all_discovered_;
}

absl::Duration WorkerPool::SilenceLimit(absl::Duration now) const {
  std::vector<absl::Duration> ages;
  ages.reserve(workers_.size());
  for (const auto& [address, worker] : workers_) {
    const std::optional<absl::Duration> heard = worker.record.last_heard();
    if (heard.has_value()) ages.push_back(now - std::max(*heard, awake_time_));
  }
  return FleetSilenceLimit(std::move(ages));
}

bool WorkerPool::Publish() {
  LoadSnapshot snapshot;
  snapshot.discovery_complete = IsDiscoveryComplete();
  if (order_.empty()) {
    order_.reserve(workers_.size());
    for (const auto& [address, worker] : workers_) order_.push_back(&worker);
  }
  snapshot.workers.reserve(order_.size());
  for (const Worker* worker : order_) {
    for (const auto& [name, model] : worker->record.models()) {
      snapshot.workers.push_back(model.load);
    }
  }
  catalog_.SettleAdapters(snapshot.workers);
  snapshot.known_models = catalog_.Names();
  snapshot.adapters = catalog_.Adapters();
  const bool changed = std::exchange(discovery_complete_, snapshot.discovery_complete) !=
                       snapshot.discovery_complete;
  const absl::Duration begin = clock_->Elapsed();
  view_->Set(std::move(snapshot));
  publish_time_ = clock_->Elapsed();
  publish_cost_ = publish_time_ - begin;
  return std::exchange(changed_, false) || changed;
}

bool WorkerPool::PublishSoon(bool changed, std::optional<absl::Duration>* delay) {
  changed_ |= changed;
  if (publish_is_due_) return false;
  const absl::Duration wait = publish_time_ +
                              std::max(options_.publish_interval, kPublishShare * publish_cost_) -
                              clock_->Elapsed();
  if (wait <= absl::ZeroDuration()) return Publish();
  publish_is_due_ = true;
  *delay = wait;
  return false;
}

void WorkerPool::PublishDelayed() {
  News news;
  {
    absl::MutexLock lock(&mutex_);
    publish_is_due_ = false;
    news.changed = Publish();
  }
  Tell(news);
}

std::shared_ptr<WorkerChannel> WorkerPool::Find(const std::string& address) const {
  absl::MutexLock lock(&channels_mutex_);
  const auto at = channels_.find(address);
  return at == channels_.end() ? nullptr : at->second;
}

std::vector<v1::Model> WorkerPool::Models() const {
  absl::MutexLock lock(&mutex_);
  return catalog_.Models(*view_->Get());
}

}  // namespace continuo::gateway

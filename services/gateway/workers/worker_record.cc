// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_record.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

// Counts apart, the two mean the same to routing.
bool SameRoute(const WorkerLoad& a, const WorkerLoad& b) {
  return a.state == b.state && a.incarnation == b.incarnation && a.fingerprint == b.fingerprint &&
         a.tokenizer_fingerprint == b.tokenizer_fingerprint;
}

// The load without its state, pool and slowness.
std::shared_ptr<WorkerLoad> MakeLoad(const std::string& address,
                                     const v1::WatchLoadResponse& report, absl::Duration now) {
  auto load = std::make_shared<WorkerLoad>();
  load->address = address;
  load->worker = report.worker();
  load->incarnation = report.incarnation();
  load->model = report.model();
  load->fingerprint = report.fingerprint();
  load->tokenizer_fingerprint = report.tokenizer_fingerprint();
  load->running_requests = report.running_requests();
  load->waiting_requests = report.waiting_requests();
  load->pending_prompt_tokens = static_cast<int64_t>(report.pending_prompt_tokens());
  load->used_kv_blocks = report.used_kv_blocks();
  load->total_kv_blocks = report.total_kv_blocks();
  load->used_state_slots = report.used_state_slots();
  load->total_state_slots = report.total_state_slots();
  load->block_size_tokens = report.block_size_tokens();
  load->max_running_requests = report.max_running_requests();
  load->report_time = now;
  return load;
}

}  // namespace

void WorkerRecord::SetPool(int pool, double weight) {
  pool_ = pool;
  pool_weight_ = weight;
}

bool WorkerRecord::SetListed(bool listed, absl::Duration now) {
  if (listed_) listed_time_ = now;
  if (listed == listed_) return false;
  listed_ = listed;
  return !listed && Judge();
}

ReportNews WorkerRecord::OnReport(const v1::WatchLoadResponse& report, absl::Duration now,
                                  SlowWorkers* slow) {
  ReportNews news;
  if (incarnation_ != report.incarnation()) {
    news.replaced = !incarnation_.empty();
    news.changed = true;
    incarnation_ = report.incarnation();
    models_.clear();
    slow->Forget(address_);
  }
  attempted_ = true;
  failures_ = 0;
  verdict_.OnReport(now);
  if (report.health() != v1::WORKER_HEALTH_UNSPECIFIED) {
    verdict_.OnReportedHealth(report.health() == v1::WORKER_HEALTH_NOT_SERVING, now);
  }

  const std::shared_ptr<WorkerLoad> load = MakeLoad(address_, report, now);
  load->pool = pool_;
  load->pool_weight = pool_weight_;
  Model& model = models_[report.model()];
  if (model.load == nullptr || model.load->fingerprint != load->fingerprint) {
    model.peers = absl::StrCat(load->model, "\n", load->fingerprint);
  }
  load->slow = slow->Report(address_, model.peers, report.steps(), report.running_requests(), now);
  model.reported = report.state();
  load->state = RoutingState(
      verdict_.Judge({.reported = model.reported, .listed = listed_, .slow = load->slow}));
  const bool was_serving = model.load != nullptr && model.load->state == WorkerState::kServing;
  if (load->state == WorkerState::kServing && !was_serving) verdict_.OnBeginServing(now);
  news.became_slow = load->slow && (model.load == nullptr || !model.load->slow);
  news.changed = news.changed || model.load == nullptr || !SameRoute(*model.load, *load);
  news.changed |= SetAdapters(report, *load, &news.withdrawn);
  news.urgent = news.replaced || (news.changed && was_serving);
  models_[report.model()].load = load;
  if (!report.model().empty()) {
    reported_model_ = true;
    models_.erase("");  // Its entry while it could not name the model yet.
  }
  return news;
}

bool WorkerRecord::SetAdapters(const v1::WatchLoadResponse& report, const WorkerLoad& load,
                               std::vector<std::string>* withdrawn) {
  bool changed = false;
  std::set<std::string_view> served;
  for (const v1::ServedAdapter& adapter : report.adapters()) {
    if (adapter.model() == report.model()) continue;
    served.insert(adapter.model());
    auto own = std::make_shared<WorkerLoad>(load);
    own->model = adapter.model();
    own->parent = report.model();
    own->fingerprint = adapter.fingerprint();
    own->on_demand = adapter.on_demand();
    Model& model = models_[adapter.model()];
    model.reported = report.state();
    changed |= model.load == nullptr || !SameRoute(*model.load, *own);
    model.load = std::move(own);
  }
  std::erase_if(models_, [&](const auto& entry) {
    const WorkerLoad* const known = entry.second.load.get();
    if (known == nullptr || known->parent.empty() || known->parent != report.model() ||
        served.contains(entry.first)) {
      return false;
    }
    withdrawn->push_back(entry.first);
    return true;
  });
  return changed || !withdrawn->empty();
}

bool WorkerRecord::OnEnd(bool refused) {
  attempted_ = true;
  verdict_.OnEnd();
  return MarkLost(refused);
}

std::optional<Verdict> WorkerRecord::Check(absl::Duration now, absl::Duration awake_time,
                                           bool* changed, absl::Duration silence_limit) {
  const bool claims_serving = std::ranges::any_of(
      models_, [](const auto& entry) { return entry.second.load->state == WorkerState::kServing; });
  const std::optional<Verdict> verdict =
      verdict_.Check(now, awake_time, claims_serving, silence_limit);
  if (verdict == Verdict::kSilent) {
    attempted_ = true;
    *changed |= MarkLost(/*refused=*/false);
  } else if (verdict == Verdict::kHung) {
    *changed |= Judge();
  }
  return verdict;
}

bool WorkerRecord::TakeModelQuery(const v1::WatchLoadResponse& report) {
  if (report.state() != v1::WORKER_STATE_SERVING) return false;
  const bool is_first = queried_incarnation_ != incarnation_;
  std::set<std::string, std::less<>> adapters;
  for (const v1::ServedAdapter& adapter : report.adapters()) adapters.insert(adapter.model());
  const bool has_more = !std::ranges::includes(queried_adapters_, adapters);
  queried_adapters_ = std::move(adapters);
  queried_incarnation_ = incarnation_;
  return is_first || has_more;
}

void WorkerRecord::OnModelQueryFailed(const std::string& incarnation) {
  if (queried_incarnation_ == incarnation) queried_incarnation_.clear();
}

absl::Duration WorkerRecord::NextReconnectDelay(absl::Duration min, absl::Duration max) {
  const absl::Duration delay = min * (1 << std::min(failures_, 8));
  ++failures_;
  return std::min(delay, max);
}

bool WorkerRecord::Judge() {
  bool changed = false;
  for (auto& [name, model] : models_) {
    const WorkerState state = RoutingState(
        verdict_.Judge({.reported = model.reported, .listed = listed_, .slow = model.load->slow}));
    if (state == model.load->state) continue;
    auto load = std::make_shared<WorkerLoad>(*model.load);
    load->state = state;
    model.load = std::move(load);
    changed = true;
  }
  return changed;
}

bool WorkerRecord::MarkLost(bool refused) {
  bool changed = false;
  for (auto& [name, model] : models_) {
    model.reported.reset();
    if (!refused || model.load->refused) continue;
    auto load = std::make_shared<WorkerLoad>(*model.load);
    load->refused = true;
    model.load = std::move(load);
    changed = true;
  }
  return Judge() || changed;
}

}  // namespace continuo::gateway

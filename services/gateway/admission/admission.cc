// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/admission.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// The share of the request's tenant, the request included, of the capacity that others leave.
int64_t TenantShare(const AdmissionRequest& request, int64_t left) {
  return left - left / (request.is_continuation ? 10 : 5);
}

// Forecasts are inaccurate, so the time left must be this many times longer than the forecast.
constexpr double kSlack = 1.25;
// A wait shorter than this fraction (1 / n) of the time left counts as none.
constexpr int kNegligibleWait = 10;
// Clients try again after so long for a model without a worker, whose start takes a while.
constexpr absl::Duration kColdRetry = absl::Seconds(10);

absl::Status Exhausted(const std::string& message, std::string_view reason, absl::Duration retry) {
  return protocol::WithRetryInfo(
      protocol::WithReason(absl::ResourceExhaustedError(message), reason), retry);
}

absl::Status Overloaded(std::string_view what, int64_t limit) {
  return Exhausted(absl::StrCat("the gateway has its limit of ", limit, " ", std::string(what)),
                   protocol::kReasonOverloaded, absl::Seconds(1));
}

// Checks a rate limit. The tenant may use `left` of `what` now, and go into debt by `debt` seconds'
// worth of `rate`.
absl::Status CheckRate(std::string_view what, double rate, double left, double debt) {
  const double missing = 1 - rate * debt - left;
  if (rate <= 0 || missing <= 0) return absl::OkStatus();
  return Exhausted(
      absl::StrCat("the tenant has its limit of ", rate, " ", std::string(what), " a second"),
      protocol::kReasonRateLimited, absl::Seconds(missing / rate));
}

// The amount that may be saved up; 0 if there is no limit.
double Most(double rate, double burst) { return rate > 0 ? std::max(1.0, rate * burst) : 0; }

}  // namespace

bool Admission::IsFresh(const Tenant& tenant, absl::Duration now) const {
  if (tenant.open_requests > 0) return false;
  const TenantLimits& limits = limits_.tenant;
  const absl::Duration passed = now - tenant.time;
  const double most_requests = Most(limits.requests_per_second, limits.burst_seconds);
  const double most_tokens = Most(limits.prompt_tokens_per_second, limits.burst_seconds);
  return tenant.requests + limits.requests_per_second * absl::ToDoubleSeconds(passed) >=
             most_requests &&
         tenant.prompt_tokens + limits.prompt_tokens_per_second * absl::ToDoubleSeconds(passed) >=
             most_tokens;
}

Admission::Tenant& Admission::FindTenant(const std::string& name, absl::Duration now) {
  if (tenants_.size() >= prune_tenants_at_) {
    std::erase_if(tenants_, [&](const auto& entry) { return IsFresh(entry.second, now); });
    for (auto& [key, queue] : queues_) {
      std::erase_if(queue.answers,
                    [&](const auto& entry) { return !tenants_.contains(entry.first); });
    }
    prune_tenants_at_ = std::max<size_t>(64, 2 * tenants_.size());
  }
  const TenantLimits& limits = limits_.tenant;
  const double most_requests = Most(limits.requests_per_second, limits.burst_seconds);
  const double most_tokens = Most(limits.prompt_tokens_per_second, limits.burst_seconds);
  const auto [at, is_new] = tenants_.try_emplace(
      name, Tenant{.requests = most_requests, .prompt_tokens = most_tokens, .time = now});
  Tenant& tenant = at->second;
  const double seconds = absl::ToDoubleSeconds(now - tenant.time);
  tenant.requests = std::min(most_requests, tenant.requests + limits.requests_per_second * seconds);
  tenant.prompt_tokens =
      std::min(most_tokens, tenant.prompt_tokens + limits.prompt_tokens_per_second * seconds);
  tenant.time = now;
  return tenant;
}

Admission::Queue& Admission::FindQueue(const AdmissionRequest& request, absl::Duration now) {
  if (queues_.size() >= prune_queues_at_) {
    std::erase_if(queues_, [&](const auto& entry) { return entry.second.wait.IsIdle(now); });
    prune_queues_at_ = std::max<size_t>(64, 2 * queues_.size());
  }
  return queues_[{request.model, request.priority}];
}

absl::Status Admission::CheckAll(const AdmissionRequest& request) const {
  if (counts_.open_requests >= limits_.max_open_requests) {
    return Overloaded("open requests", limits_.max_open_requests);
  }
  if (counts_.open_bytes + request.bytes > limits_.max_open_bytes && counts_.open_requests > 0) {
    return Overloaded("bytes of open requests", limits_.max_open_bytes);
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckCold(const AdmissionRequest& request, const Tenant& tenant) const {
  if (!request.is_cold) return absl::OkStatus();
  const int64_t most = limits_.tenant.max_cold_requests;
  // A gateway that died had as many again.
  if (most > 0 &&
      (request.is_continuation ? tenant.cold_requests - most : tenant.cold_requests) >= most) {
    return Exhausted(absl::StrCat("the tenant has its limit of ", most,
                                  " requests that wait for a model without a worker"),
                     protocol::kReasonRateLimited, kColdRetry);
  }
  if (counts_.cold_requests == 0) return absl::OkStatus();
  const auto exceeds = [&](int64_t count, int64_t more, int64_t limit) {
    return count + more > limit / 2;
  };
  if (exceeds(counts_.cold_requests, 1, limits_.max_open_requests) ||
      exceeds(counts_.cold_bytes, request.bytes, limits_.max_open_bytes) ||
      exceeds(counts_.cold_tokens, request.tokens, limits_.max_queued_tokens)) {
    return Exhausted(
        "requests that wait for models without a worker have taken their half of the "
        "gateway's limits",
        protocol::kReasonOverloaded, kColdRetry);
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckShare(const AdmissionRequest& request, const Tenant& tenant) const {
  if (tenant.open_requests == 0) return absl::OkStatus();
  const int64_t others = counts_.open_requests - tenant.open_requests;
  const int64_t requests = TenantShare(request, limits_.max_open_requests - others);
  if (tenant.open_requests >= requests) {
    return Overloaded("open requests for one tenant beside others", requests);
  }
  const int64_t other_bytes = counts_.open_bytes - tenant.open_bytes;
  const int64_t bytes = TenantShare(request, limits_.max_open_bytes - other_bytes);
  if (tenant.open_bytes + request.bytes > bytes) {
    return Overloaded("bytes of open requests for one tenant beside others", bytes);
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckQueue(const AdmissionRequest& request, const Tenant& tenant) const {
  if (counts_.queued_requests == 0) return absl::OkStatus();
  const int64_t limit = limits_.max_queued_tokens;
  if (counts_.queued_tokens + request.tokens > limit) {
    return Overloaded("queued prompt tokens", limit);
  }
  if (request.priority < 0 && !request.is_continuation &&
      counts_.queued_tokens + request.tokens > limit / 2) {
    return Overloaded("queued prompt tokens for requests of negative priority", limit / 2);
  }
  const int64_t others = counts_.queued_tokens - tenant.queued_tokens;
  const int64_t share = TenantShare(request, limit - others);
  if (tenant.queued_tokens > 0 && tenant.queued_tokens + request.tokens > share) {
    return Overloaded("queued prompt tokens for one tenant beside others", share);
  }
  return absl::OkStatus();
}

Admission::Forecast Admission::Predict(const AdmissionRequest& request, const Queue& queue) {
  const auto at = queue.answers.find(request.tenant);
  if (at == queue.answers.end())
    return {.answer = absl::ZeroDuration(), .work_tokens = request.tokens};
  return {.answer = at->second.Predict(request.max_tokens),
          .work_tokens = request.tokens + at->second.PredictTokens(request.max_tokens)};
}

absl::Status Admission::CheckDeadline(const AdmissionRequest& request, const Queue& queue,
                                      const Forecast& forecast, absl::Duration now) const {
  if (counts_.queued_requests == 0 || request.is_continuation || request.has_free_worker ||
      request.time_left == absl::InfiniteDuration()) {
    return absl::OkStatus();
  }
  const absl::Duration wait =
      queue.wait.Predict(request.tenant, forecast.work_tokens, now) * kSlack;
  const absl::Duration answer = forecast.answer * kSlack;
  // While workers are hardly behind, nobody is rejected for the length of answers.
  if (wait <= std::max(absl::ZeroDuration(), request.time_left / kNegligibleWait) ||
      wait + answer <= request.time_left) {
    return absl::OkStatus();
  }
  return Exhausted(
      absl::StrCat("the deadline is in ",
                   absl::FormatDuration(absl::Trunc(request.time_left, absl::Milliseconds(1))),
                   ", requests wait up to ",
                   absl::FormatDuration(absl::Trunc(wait, absl::Milliseconds(1))),
                   " until they are begun now and take up to ",
                   absl::FormatDuration(absl::Trunc(answer, absl::Milliseconds(1)))),
      protocol::kReasonOverloaded,
      std::max(std::min(wait, wait + answer - request.time_left), absl::Milliseconds(100)));
}

absl::Status Admission::CheckTenant(const AdmissionRequest& request, const Tenant& tenant) const {
  const TenantLimits& limits = limits_.tenant;
  const int64_t most_open = limits.max_open_requests;
  // A gateway that died had as many again, so continuations may have twice as many.
  if (most_open > 0 && (request.is_continuation ? tenant.open_requests - most_open
                                                : tenant.open_requests) >= most_open) {
    return Exhausted(absl::StrCat("the tenant has its limit of ", most_open, " open requests"),
                     protocol::kReasonRateLimited, absl::Seconds(1));
  }
  const double debt = request.is_continuation ? limits.debt_seconds : 0;
  RETURN_IF_ERROR(CheckRate("requests", limits.requests_per_second, tenant.requests, debt));
  // A prompt may take more than is left; the next one waits until that is paid off.
  return CheckRate("prompt tokens", limits.prompt_tokens_per_second, tenant.prompt_tokens, debt);
}

absl::StatusOr<Admission::Ticket> Admission::Admit(const AdmissionRequest& request) {
  // Trying again would not help, so this is no RESOURCE_EXHAUSTED.
  if (request.time_left <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("the deadline has passed before the request was taken");
  }
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Elapsed();
  RETURN_IF_ERROR(CheckAll(request));
  Tenant& tenant = FindTenant(request.tenant, now);
  RETURN_IF_ERROR(CheckTenant(request, tenant));
  RETURN_IF_ERROR(CheckCold(request, tenant));
  RETURN_IF_ERROR(CheckShare(request, tenant));
  RETURN_IF_ERROR(CheckQueue(request, tenant));
  Queue& queue = FindQueue(request, now);
  const Forecast forecast = Predict(request, queue);
  RETURN_IF_ERROR(CheckDeadline(request, queue, forecast, now));
  queue.wait.Join(request.tenant, forecast.work_tokens);
  Ticket ticket(this, {.tenant = request.tenant,
                       .queue = {request.model, request.priority},
                       .bytes = request.bytes,
                       .tokens = request.tokens,
                       .work_tokens = forecast.work_tokens,
                       .wait = &queue.wait,
                       .cold = request.is_cold});
  if (request.is_cold) {
    tenant.cold_requests += 1;
    counts_.cold_requests += 1;
    counts_.cold_bytes += request.bytes;
    counts_.cold_tokens += request.tokens;
  }
  if (limits_.tenant.requests_per_second > 0) tenant.requests -= 1;
  if (limits_.tenant.prompt_tokens_per_second > 0) {
    tenant.prompt_tokens -= static_cast<double>(request.tokens);
  }
  tenant.open_requests += 1;
  tenant.open_bytes += request.bytes;
  tenant.queued_tokens += request.tokens;
  counts_.open_requests += 1;
  counts_.open_bytes += request.bytes;
  counts_.queued_requests += 1;
  counts_.queued_tokens += request.tokens;
  ModelCounts& of_model = by_model_[request.model];
  of_model.open_requests += 1;
  of_model.queued_tokens += request.tokens;
  return ticket;
}

double Admission::Counts::SaturationOf(const AdmissionLimits& limits) const {
  const auto share = [](int64_t used, int64_t limit) {
    return static_cast<double>(used) / static_cast<double>(std::max<int64_t>(limit, 1));
  };
  return std::max({share(open_requests, limits.max_open_requests),
                   share(open_bytes, limits.max_open_bytes),
                   share(queued_tokens, limits.max_queued_tokens)});
}

Admission::Counts Admission::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

std::map<std::string, Admission::ModelCounts> Admission::counts_by_model() const {
  absl::MutexLock lock(&mutex_);
  return by_model_;
}

size_t Admission::num_tenants() const {
  absl::MutexLock lock(&mutex_);
  return tenants_.size();
}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    claim_ = std::move(other.claim_);
  }
  return *this;
}

void Admission::Ticket::SetSent(bool sent) {
  if (admission_ == nullptr || claim_.wait == nullptr || claim_.sent == sent) return;
  const absl::Duration now = admission_->clock_->Elapsed();
  absl::MutexLock lock(&admission_->mutex_);
  claim_.sent = sent;
  if (sent) {
    LeaveCold();
    claim_.wait->Sent(now);
  } else {
    claim_.wait->Unsent();
  }
}

void Admission::Ticket::MarkRead() {
  if (admission_ == nullptr || claim_.wait == nullptr) return;
  const absl::Duration now = admission_->clock_->Elapsed();
  absl::MutexLock lock(&admission_->mutex_);
  if (std::exchange(claim_.sent, false)) claim_.wait->Read(claim_.work_tokens, now);
  LeaveWait();
}

void Admission::Ticket::MarkStarted() {
  if (admission_ == nullptr || !claim_.queued) return;
  MarkRead();
  absl::MutexLock lock(&admission_->mutex_);
  LeaveQueue();
}

void Admission::Ticket::MarkAnswered(absl::Duration first, absl::Duration rest, int64_t tokens) {
  if (admission_ == nullptr || tokens <= 0) return;
  absl::MutexLock lock(&admission_->mutex_);
  const auto queue = admission_->queues_.find(claim_.queue);
  if (queue == admission_->queues_.end()) return;
  queue->second.answers[claim_.tenant].Record(first, rest, tokens);
}

void Admission::Ticket::LeaveCold() {
  if (!std::exchange(claim_.cold, false)) return;
  admission_->tenants_[claim_.tenant].cold_requests -= 1;
  admission_->counts_.cold_requests -= 1;
  admission_->counts_.cold_bytes -= claim_.bytes;
  admission_->counts_.cold_tokens -= claim_.tokens;
}

void Admission::Ticket::LeaveWait() {
  LeaveCold();
  QueueWait* const wait = std::exchange(claim_.wait, nullptr);
  if (wait == nullptr) return;
  if (std::exchange(claim_.sent, false)) wait->Unsent();
  wait->Leave(claim_.tenant, claim_.work_tokens);
}

void Admission::Ticket::LeaveQueue() {
  if (!std::exchange(claim_.queued, false)) return;
  admission_->counts_.queued_requests -= 1;
  admission_->counts_.queued_tokens -= claim_.tokens;
  admission_->tenants_[claim_.tenant].queued_tokens -= claim_.tokens;
  admission_->by_model_[claim_.queue.first].queued_tokens -= claim_.tokens;
}

void Admission::Ticket::Release() {
  if (admission_ == nullptr) return;
  absl::MutexLock lock(&admission_->mutex_);
  LeaveWait();
  LeaveQueue();
  admission_->counts_.open_requests -= 1;
  admission_->counts_.open_bytes -= claim_.bytes;
  const auto of_model = admission_->by_model_.find(claim_.queue.first);
  if (--of_model->second.open_requests == 0) admission_->by_model_.erase(of_model);
  Tenant& tenant = admission_->tenants_[claim_.tenant];
  tenant.open_requests -= 1;
  tenant.open_bytes -= claim_.bytes;
  admission_ = nullptr;
}

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/key_limiter.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// The debt that continuations may take, in minutes of the rates.
constexpr double kDebtMinutes = 10;
// Models that the error for a request without one tells.
constexpr size_t kMaxToldModels = 8;

// The time until `left`, filled at `per_minute`, allows a request; 0 if it does now.
absl::Duration WaitFor(int64_t per_minute, double left, bool is_continuation) {
  const double rate = static_cast<double>(per_minute);
  const double missing = 1 - left - (is_continuation ? kDebtMinutes * rate : 0);
  return missing <= 0 ? absl::ZeroDuration() : absl::Minutes(missing / rate);
}

// The amount of one limit after it may have changed and time has passed.
double Filled(double left, int64_t old_limit, int64_t limit, double minutes) {
  const auto most = static_cast<double>(limit);
  if (old_limit == 0) return most;
  return std::min(most, left + most * minutes);
}

}  // namespace

KeyLimiter::Claim& KeyLimiter::Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  Release();
  limiter_ = std::exchange(other.limiter_, nullptr);
  key_ = std::move(other.key_);
  tokens_ = other.tokens_;
  return *this;
}

void KeyLimiter::Claim::Release() {
  KeyLimiter* const limiter = std::exchange(limiter_, nullptr);
  if (limiter == nullptr) return;
  absl::MutexLock lock(&limiter->mutex_);
  limiter->Find(*key_, nullptr).concurrent -= 1;
}

void KeyLimiter::Claim::Refund() {
  KeyLimiter* const limiter = std::exchange(limiter_, nullptr);
  if (limiter == nullptr) return;
  absl::MutexLock lock(&limiter->mutex_);
  Usage& usage = limiter->Find(*key_, nullptr);
  usage.concurrent -= 1;
  usage.requests += 1;
  usage.tokens += static_cast<double>(tokens_);
}

void KeyLimiter::Claim::Settle(int64_t tokens) {
  if (limiter_ == nullptr) return;
  absl::MutexLock lock(&limiter_->mutex_);
  limiter_->Find(*key_, nullptr).tokens -=
      static_cast<double>(tokens - std::exchange(tokens_, tokens));
}

void KeyLimiter::Fill(const KeyLimits& limits, absl::Duration now, Usage* usage) {
  const double minutes = absl::ToDoubleMinutes(now - usage->time);
  usage->requests = Filled(usage->requests, usage->limits.requests_per_minute,
                           limits.requests_per_minute, minutes);
  usage->tokens =
      Filled(usage->tokens, usage->limits.tokens_per_minute, limits.tokens_per_minute, minutes);
  usage->limits = limits;
  usage->time = now;
}

KeyLimiter::Usage& KeyLimiter::Find(const KeyGrant& key, const KeyLimits* limits) {
  const absl::Duration now = clock_->Elapsed();
  if (usage_.size() >= prune_at_ && !usage_.contains(key.digest)) {
    absl::erase_if(usage_, [&](auto& entry) {
      Usage& usage = entry.second;
      Fill(usage.limits, now, &usage);
      return usage.concurrent == 0 &&
             usage.requests >= static_cast<double>(usage.limits.requests_per_minute) &&
             usage.tokens >= static_cast<double>(usage.limits.tokens_per_minute);
    });
    prune_at_ = std::max<size_t>(64, 2 * usage_.size());
  }
  Usage& usage = usage_.try_emplace(key.digest, Usage{.time = now}).first->second;
  Fill(limits != nullptr ? *limits : usage.limits, now, &usage);
  return usage;
}

absl::Status KeyLimiter::Reject(KeyLimit limit, int64_t most, std::string_view what,
                                absl::Duration retry) {
  rejected_[static_cast<size_t>(limit)].fetch_add(1, std::memory_order_relaxed);
  return protocol::WithRetryInfo(
      protocol::WithReason(absl::ResourceExhaustedError(absl::StrCat("the key has its limit of ",
                                                                     most, " ", std::string(what))),
                           protocol::kReasonRateLimited),
      retry);
}

absl::StatusOr<KeyLimiter::Claim> KeyLimiter::Take(std::shared_ptr<const KeyGrant> key,
                                                   int64_t prompt_tokens, bool is_continuation) {
  if (key == nullptr || key->limits == KeyLimits()) {
    // Nothing is counted; the key is told to the log.
    return Claim(nullptr, std::move(key), 0);
  }
  const KeyLimits& limits = key->limits;
  absl::MutexLock lock(&mutex_);
  Usage& usage = Find(*key, &limits);
  if (const int64_t most = limits.concurrent_requests;
      most > 0 && usage.concurrent >= (is_continuation ? 2 * most : most)) {
    return Reject(KeyLimit::kConcurrency, most, "concurrent requests", absl::Seconds(1));
  }
  if (const int64_t most = limits.requests_per_minute; most > 0) {
    const absl::Duration wait = WaitFor(most, usage.requests, is_continuation);
    if (wait > absl::ZeroDuration()) {
      return Reject(KeyLimit::kRequests, most, "requests a minute", wait);
    }
  }
  if (const int64_t most = limits.tokens_per_minute; most > 0) {
    // A prompt may take more than is left; the next one waits until that is paid off.
    const absl::Duration wait = WaitFor(most, usage.tokens, is_continuation);
    if (wait > absl::ZeroDuration()) {
      return Reject(KeyLimit::kTokens, most, "tokens a minute", wait);
    }
  }
  usage.concurrent += 1;
  usage.requests -= 1;
  usage.tokens -= static_cast<double>(prompt_tokens);
  return Claim(this, std::move(key), prompt_tokens);
}

absl::Status KeyLimiter::CheckModel(const KeyGrant* key, std::string_view model) {
  if (key == nullptr || key->models.empty()) return absl::OkStatus();
  if (model.empty()) {
    const size_t num_told = std::min(key->models.size(), kMaxToldModels);
    return protocol::FieldError(
        "model",
        absl::StrCat(
            "is needed: the key is for ",
            absl::StrJoin(key->models.begin(),
                          key->models.begin() + static_cast<std::ptrdiff_t>(num_told), ", "),
            num_told < key->models.size() ? ", …" : ""));
  }
  if (key->MayUse(model)) return absl::OkStatus();
  rejected_[static_cast<size_t>(KeyLimit::kModels)].fetch_add(1, std::memory_order_relaxed);
  return protocol::WithReason(absl::PermissionDeniedError(absl::StrCat(
                                  "the key is not for the model \"",
                                  absl::CHexEscape(std::string(model.substr(0, 256))), "\"")),
                              protocol::kReasonModelNotAllowed);
}

size_t KeyLimiter::num_keys() const {
  absl::MutexLock lock(&mutex_);
  return usage_.size();
}

}  // namespace continuo::gateway

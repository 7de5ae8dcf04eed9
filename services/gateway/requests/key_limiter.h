// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/requests/key_ring.h"

namespace continuo::gateway {

// The limits of keys, in the order of their metric's series.
enum class KeyLimit { kRequests, kTokens, kConcurrency, kModels };
inline constexpr std::array kKeyLimitNames = {
    std::string_view("requests_per_minute"), std::string_view("tokens_per_minute"),
    std::string_view("concurrent_requests"), std::string_view("models")};

// Enforces what keys allow beside their tenant's limits. What a key has used is kept while it is
// used, also over a change of the file. Thread-safe; outlives its claims.
class KeyLimiter {
 public:
  // One request of a key, from its admission to its end. It gives its place back when it is
  // destroyed. Used by one thread at a time.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;
    ~Claim() { Release(); }
    // The request was not admitted after all: it does not count.
    void Refund();
    // The number of tokens, of prompt and answer, that the request has taken; before that it is its
    // prompt's estimate. Where they are more than the key has left, later requests wait.
    void Settle(int64_t tokens);
    // Null without a key.
    const KeyGrant* key() const { return key_.get(); }

   private:
    friend class KeyLimiter;
    Claim(KeyLimiter* limiter, std::shared_ptr<const KeyGrant> key, int64_t tokens)
        : limiter_(limiter), key_(std::move(key)), tokens_(tokens) {}
    void Release();

    KeyLimiter* limiter_ = nullptr;
    std::shared_ptr<const KeyGrant> key_;
    int64_t tokens_ = 0;
  };

  // `clock` outlives the limiter.
  explicit KeyLimiter(const Clock* clock) : clock_(clock) {}

  // PERMISSION_DENIED, reason MODEL_NOT_ALLOWED, for a model that the key is not for;
  // INVALID_ARGUMENT where a key for some models comes with a request that names none. A null key
  // may use all.
  absl::Status CheckModel(const KeyGrant* key, std::string_view model);
  // Takes a place for a request. RESOURCE_EXHAUSTED, reason RATE_LIMITED, with RetryInfo, names the
  // limit. The rates are of a minute, which may be used at once after a pause. A continuation,
  // which goes on with what another gateway has begun, is charged like any request, but bound only
  // by twice the concurrent requests and by a debt of ten minutes.
  absl::StatusOr<Claim> Take(std::shared_ptr<const KeyGrant> key, int64_t prompt_tokens,
                             bool is_continuation);

  int64_t num_rejected(KeyLimit limit) const {
    return rejected_[static_cast<size_t>(limit)].load(std::memory_order_relaxed);
  }
  // The number of keys that are remembered.
  size_t num_keys() const;

 private:
  // The amounts that a key has left; both are filled up to `time`, and below 0 in debt.
  struct Usage {
    KeyLimits limits;
    int64_t concurrent = 0;
    double requests = 0, tokens = 0;
    absl::Duration time;
  };
  // Returns what the key has left now. `limits` are those of the latest request; null: as before.
  Usage& Find(const KeyGrant& key, const KeyLimits* limits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Fill(const KeyLimits& limits, absl::Duration now, Usage* usage);
  absl::Status Reject(KeyLimit limit, int64_t most, std::string_view what, absl::Duration retry);

  const Clock* const clock_;
  std::array<std::atomic<int64_t>, kKeyLimitNames.size()> rejected_ = {};
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<KeyGrant::Digest, Usage> usage_ ABSL_GUARDED_BY(mutex_);
  // Keys that need not be remembered are dropped when there are this many.
  size_t prune_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// Forecasts how long a request waits until a worker begins its prefill: the tokens ahead of it over
// the rate at which tokens leave the queue.
//
// The rate is measured from one prompt that a worker begins to the next one, while workers have had
// a queue without a pause for a while. So the wait for a worker to appear, a request's own prefill
// and a fleet that is never behind do not count. A request that gave up waiting adds time but no
// tokens. While nothing is known the forecast is 0: better a request that waits in vain than one
// that is rejected without need.
//
// A function of what it is told; times are those of Clock::Elapsed. Not thread-safe.
class QueueWait {
 public:
  // A request is queued from Join until Leave, whether a worker has it or not.
  void Join(const std::string& tenant, int64_t tokens);
  void Leave(const std::string& tenant, int64_t tokens);
  // A queued request has been sent to a worker.
  void Sent(absl::Duration now);
  // A request that was sent has no worker any more, and its prompt was not begun.
  void Unsent() { --num_sent_; }
  // A worker has begun the prompt of a request that was sent.
  void Read(int64_t tokens, absl::Duration now);

  // The time until a worker would begin a request of `tokens` tokens. Tenants take turns, as they
  // do on the workers, so of each other tenant at most as many tokens are ahead as its own tenant
  // has queued, the request included.
  absl::Duration Predict(const std::string& tenant, int64_t tokens, absl::Duration now) const;

  // True if nothing is queued, not even a prompt without tokens, and no measurement is left.
  bool IsIdle(absl::Duration now) const { return num_queued_ == 0 && IsStale(now); }

 private:
  // True if the measurements are too old to be used.
  bool IsStale(absl::Duration now) const;

  absl::flat_hash_map<std::string, int64_t> by_tenant_;  // tokens queued; no zeros
  int64_t num_queued_ = 0;
  int64_t num_sent_ = 0;       // requests at workers whose prompts are not begun
  absl::Duration busy_since_;  // when num_sent_ last rose above 0
  absl::Duration last_read_ = -absl::InfiniteDuration();
  // The tokens that left the queue, and the seconds they took; recent ones count more.
  double tokens_ = 0, seconds_ = 0;
  absl::Duration measured_ = -absl::InfiniteDuration();  // when they were last added to
};

}  // namespace continuo::gateway

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// How long a request would wait until a worker reads its prompt: the prompt tokens before it, over
// the rate at which prompt tokens leave the queue.
//
// Measured is only between one request leaving the queue for a worker's step and the next one,
// while workers have had some queued without a pause for a while. So a wait for a worker to
// appear, a request's own prefill, and a fleet that is never behind tell nothing; a request that
// gave up waiting counts as not served, and the time it waited as time. What nothing is known of
// takes no time: better a request that waits in vain than one that is refused without need.
//
// Pure: times are passed in, as Clock::Elapsed tells them. Not thread-safe.
class QueueWait {
 public:
  // A request is queued from Join until Leave, whether a worker has it or not.
  void Join(const std::string& tenant, int64_t tokens);
  void Leave(const std::string& tenant, int64_t tokens);
  // A queued request is now with a worker; or no longer, unread.
  void Sent(absl::Duration now);
  void Unsent() { --num_sent_; }
  // One that was sent is being read.
  void Read(int64_t tokens, absl::Duration now);

  // Until a worker would begin to read a prompt of so many tokens. Tenants take turns, as they do
  // on the workers: of each other one no more is before it than of its own tenant with it.
  absl::Duration Predict(const std::string& tenant, int64_t tokens, absl::Duration now) const;

  // Nothing is queued, not even a prompt without a token, and nothing is remembered.
  bool IsIdle(absl::Duration now) const { return num_queued_ == 0 && IsStale(now); }

 private:
  // What was measured is too old to tell anything.
  bool IsStale(absl::Duration now) const;

  absl::flat_hash_map<std::string, int64_t> by_tenant_;  // tokens queued; no zeros
  int64_t num_queued_ = 0;
  int64_t num_sent_ = 0;       // and not read
  absl::Duration busy_since_;  // since when num_sent_ is above 0
  absl::Duration last_read_ = -absl::InfiniteDuration();
  // Tokens read, and the seconds they took; recent ones count more.
  double tokens_ = 0, seconds_ = 0;
  absl::Duration measured_ = -absl::InfiniteDuration();  // when last added to
};

}  // namespace continuo::gateway

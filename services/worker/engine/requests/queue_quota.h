// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace continuo::engine {

// Limits how many prompt tokens may wait. When the queue is full, a tenant that has less than an
// equal part of it still gets in, so that a tenant that floods does not lock the others out. The
// queue never exceeds twice the limit that way. Not thread-safe.
class QueueQuota {
 public:
  explicit QueueQuota(int64_t max_tokens) : max_tokens_(max_tokens) {}

  // Returns ResourceExhausted with the numbers if `tokens` more of `tenant` are too many. One
  // request may always wait, however long, so that an idle worker takes whatever fits its cache.
  absl::Status Check(const std::string& tenant, int64_t tokens) const;
  void Add(const std::string& tenant, int64_t tokens);
  void Remove(const std::string& tenant, int64_t tokens);

  int64_t tokens() const { return tokens_; }

 private:
  const int64_t max_tokens_;
  int64_t tokens_ = 0;
  absl::flat_hash_map<std::string, int64_t> by_tenant_;  // entries are positive
};

}  // namespace continuo::engine

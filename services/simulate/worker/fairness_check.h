// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace continuo::simulate {

// Checks that of two tenants who both have requests waiting at a worker none falls behind by more
// than `slack` tokens. Tokens count since both have requests there, waiting or not: a tenant that
// got less meanwhile may catch up first. Migrated requests are admitted before all others, so the
// tokens that bring them into the cache come on top of the slack. Not thread-safe.
class FairnessCheck {
 public:
  struct Tokens {
    int64_t all = 0;
    int64_t migrated = 0;  // of these, prompts and received answers of migrated requests
  };

  explicit FairnessCheck(int64_t slack) : slack_(slack) {}

  // A step of the worker has ended. `tokens` are those that it computed, by tenant; when it began,
  // `live` had requests at the worker, and of these `waiting` had some in the queue. Returns
  // Internal if one that waits is too far behind another one.
  absl::Status OnStep(const std::map<std::string, Tokens>& tokens,
                      const std::set<std::string>& live, const std::set<std::string>& waiting);

 private:
  // The first tenant of a pair is the one whose name comes first.
  struct Pair {
    int64_t ahead = 0;  // tokens that the first got beyond the second
    bool waits = false;
    int64_t most = 0, least = 0;  // of `ahead`, while both wait
  };

  const int64_t slack_;
  std::map<std::pair<std::string, std::string>, Pair> pairs_;
};

}  // namespace continuo::simulate

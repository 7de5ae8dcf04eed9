// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace continuo::simulate {

// Checks that tenants who all have requests waiting at a worker get the same number of tokens
// there, give or take `slack`. Not thread-safe.
class FairnessCheck {
 public:
  explicit FairnessCheck(int64_t slack) : slack_(slack) {}

  // A step of the worker has ended. `tokens` are those that it computed, by tenant; `waiting` are
  // the tenants that had requests waiting when it began. Returns Internal if one of them lags
  // behind another one.
  absl::Status OnStep(const std::map<std::string, int64_t>& tokens,
                      const std::set<std::string>& waiting);

 private:
  const int64_t slack_;
  // How far the first of two is ahead of the second since both wait without a pause.
  std::map<std::pair<std::string, std::string>, int64_t> ahead_;
};

}  // namespace continuo::simulate

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::gateway {

// The models that pools serve by the operator's word, whether they have a worker or not.
struct DeclaredModels {
  std::set<std::string, std::less<>> models;
  // LoRA adapters, with the models that they adapt, which are among `models`.
  std::map<std::string, std::string, std::less<>> adapters;
};

// Reads the value of --models: names, and adapters in the form ADAPTER=MODEL. InvalidArgument names
// what is wrong and the limit.
absl::StatusOr<DeclaredModels> ParseDeclaredModels(const std::vector<std::string>& names);

}  // namespace continuo::gateway

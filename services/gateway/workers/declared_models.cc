// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/declared_models.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "services/protocol/limits.h"

namespace continuo::gateway {
namespace {

constexpr size_t kMaxModels = 64, kMaxAdapters = 4096;

template <typename... Parts>
absl::Status Error(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("--models", parts...));
}

}  // namespace

absl::StatusOr<DeclaredModels> ParseDeclaredModels(const std::vector<std::string>& names) {
  DeclaredModels declared;
  size_t num_models = 0;
  for (const std::string& name : names) {
    const size_t equals = name.find('=');
    const std::string model = name.substr(equals == name.npos ? 0 : equals + 1);
    for (const std::string& each : {name.substr(0, equals), model}) {
      if (each.size() > protocol::kMaxModelNameBytes) {
        return Error(": a name has ", each.size(), " bytes, the limit is ",
                     protocol::kMaxModelNameBytes);
      }
      if (each.empty()) return Error(": \"", name, "\" is not of the form ADAPTER=MODEL");
    }
    if (equals == name.npos) {
      ++num_models;
      declared.models.insert(model);
      continue;
    }
    const std::string adapter = name.substr(0, equals);
    const auto [at, is_new] = declared.adapters.emplace(adapter, model);
    if (!is_new && at->second != model) {
      return Error(": the adapter \"", adapter, "\" is one of \"", at->second, "\" and of \"",
                   model, "\"");
    }
  }
  if (num_models > kMaxModels) {
    return Error(" has ", num_models, " names, the limit is ", kMaxModels);
  }
  if (declared.adapters.size() > kMaxAdapters) {
    return Error(" has ", declared.adapters.size(), " adapters, the limit is ", kMaxAdapters);
  }
  for (const auto& [adapter, model] : declared.adapters) {
    if (declared.models.contains(adapter)) {
      return Error(": \"", adapter, "\" is a model and an adapter");
    }
    if (!declared.models.contains(model)) {
      return Error(": \"", model, "\", which the adapter \"", adapter, "\" is of, is not there");
    }
  }
  return declared;
}

}  // namespace continuo::gateway

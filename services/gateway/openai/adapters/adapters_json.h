// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bodies of /v1/load_lora_adapter and /v1/unload_lora_adapter, which are vLLM's. Pure
// functions.

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/adapters/adapter_updates.h"
#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai {

// The objects of both, in the order of the documents.
std::span<const ObjectMembers* const> AdapterObjects();

// INVALID_ARGUMENT names the member that is wrong, unknown or refused.
absl::StatusOr<AdapterUpdate> ParseAdapterUpdate(AdapterUpdate::Kind kind, std::string_view body);

// The member "workers" of an answer, with its name: each with its name, its code and, where it has
// failed, its message.
std::string WorkersMember(const AdapterOutcome& outcome);
// The answer to an update that each worker has done.
std::string AdapterUpdateJson(const AdapterUpdate& update, const AdapterOutcome& outcome);

}  // namespace continuo::gateway::openai
